/** Codecs whose values are copies and not views. */

import type { Codec, Descriptor, Memory } from "./codec.js";
import { fingerprint } from "./fingerprint.js";
import { layoutOf } from "./layout-string.js";
import { badValue } from "./type.js";

/** Values that are copies: made of bytes when they are read, and made into bytes when they are written. */
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
    return bytes.length;
  }

  write(memory: Memory, at: number, value: T, size: number): void {
    const { measured, staged } = this;
    const bytes = (measured === value && staged) || this.encode(value);
    this.measured = undefined;
    this.staged = undefined;
    // The code of its key may have stored another value by this codec, or changed this one.
    if (bytes.length !== size) throw badValue("The value must not change while it is stored.");
    memory.u8.set(bytes, at);
  }

  view(memory: Memory, at: number, length: number): T {
    return this.decode(memory.u8.subarray(at, at + length));
  }

  writable(memory: Memory, at: number, length: number): T {
    return this.view(memory, at, length);
  }

  /** An object was changed as it is. What is none cannot be changed but by returning another. */
  finish(writable: T): Uint8Array | undefined {
    return typeof writable === "object" && writable !== null ? this.encode(writable) : undefined;
  }

  revoke(): void {}

  check(bytes: Uint8Array): void {
    this.decode(bytes);
  }
}
