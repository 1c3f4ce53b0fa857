/** varve/rust: schemas as the Rust structs that have the same bytes. */

export { toRust } from "./struct/codegen/rust.js";
