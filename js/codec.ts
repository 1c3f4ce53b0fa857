/**
 * varve/codec: what collections make of schemas. For those who store and change values in place in memory
 * of their own; it needs nothing of the engine.
 */

export type {
  Codec,
  CustomCodec,
  Declared,
  Descriptor,
  Memory,
  StructCodec,
  Structure,
} from "./struct/codec.js";
export { codecOf } from "./struct/custom.js";
