/**
 * varve/codec: the codecs that collections make of schemas. For programs that store values, and change them
 * in place, in memory of their own. It needs nothing of the engine.
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
export { codecOf } from "./struct/value-codecs.js";
