/** Codecs whose values are copies and not views. */

import { byteLengthOf } from "./byte-length.js";
import type { Codec, Descriptor, Memory } from "./codec.js";
import { fingerprint } from "./fingerprint.js";
import { layoutOf } from "./layout-string.js";
import { badValue } from "./type.js";

/** Base class of codecs that decode a copy when they read and encode it again when they write. */
export abstract class CopyCodec<T> implements Codec<T, T, T> {
  readonly kind: Descriptor;
  readonly layout: string;
  readonly fingerprint: string;
  /** The value that was measured last, and its bytes, until they are written. */
  private measured: T | undefined;
  private staged: Uint8Array | undefined;

  constructor(kind: Descriptor) {
    this.kind = kind;
    this.layout = layoutOf(kind);
    this.fingerprint = fingerprint(this.layout);
    this.measured = undefined;
    this.staged = undefined;
  }

  protected abstract encode(value: T): Uint8Array;
  protected abstract decode(bytes: Uint8Array): T;

  size(value: T): number {
    const bytes = this.encode(value);
    this.measured = value;
    this.staged = bytes;
    return byteLengthOf(bytes);
  }

  write(memory: Memory, at: number, value: T, size: number): void {
    const { measured, staged } = this;
    const bytes = (measured === value && staged) || this.encode(value);
    this.measured = undefined;
    this.staged = undefined;
    // Code of the key, such as a getter, may have stored another value with this codec, or changed this one.
    if (byteLengthOf(bytes) !== size)
      throw badValue("The value must not change while it is stored.");
    memory.u8.set(bytes, at);
  }

  view(memory: Memory, at: number, length: number): T {
    return this.decode(memory.u8.subarray(at, at + length));
  }

  writable(memory: Memory, at: number, length: number): T {
    return this.view(memory, at, length);
  }

  /** Encodes an object again, which the callback may have changed. Other values can only be replaced. */
  finish(writable: T): Uint8Array | undefined {
    return typeof writable === "object" && writable !== null ? this.encode(writable) : undefined;
  }

  revoke(): void {}

  check(bytes: Uint8Array): void {
    this.decode(bytes);
  }
}
