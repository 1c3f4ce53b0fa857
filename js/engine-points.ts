/**
 * The calls for one key: found, written, changed where it lies, pinned. They are hot, and each that is
 * says for itself what the others leave to `call`.
 */

import { asBytes, byteLengthOf, type Key, refuseLoneSurrogates, type Value } from "./bytes.js";
import { encoder } from "./coders.js";
import { EngineInstance, OK } from "./engine-instance.js";
import { BROKEN, RAW, SHORT_TEXT, SHORT_VALUE } from "./engine-memory.js";

/** What `version` answers for a key that lost writes may have changed. */
const UNCERTAIN = 3;

/** Texts above this length are encoded apart: what they may come to has no room in the second key area. */
const LONG_TEXT = 8_192;

/** An instance whose records can be asked for and written. */
export class EnginePoints extends EngineInstance {
  private uncertain = false;

  // ---------------------------------------------------------------- reading

  /** A view of the value, or `undefined`. */
  get(key: Key, keyspace = RAW): Uint8Array<ArrayBuffer> | undefined {
    const at = this.find(this.encodeKey(key), keyspace);
    if (at === 0) return undefined;
    const length = this.u32[this.lengthAt] as number;
    return this.copies ? this.copyAt(at, length) : this.view(at, length);
  }

  has(key: Key, keyspace = RAW): boolean {
    return this.find(this.encodeKey(key), keyspace) !== 0;
  }

  /** The address of the value of the encoded key, 0 when there is none; its length is `foundLength()`. */
  find(keyLength: number, keyspace: number): number {
    let at: number;
    // As `wasm` does it, whose call takes as long as a fourteenth of all of this.
    if (this.queueLimit !== 0) this.settle();
    try {
      at = this.exports.find(keyspace, keyLength) >>> 0;
      // A cold record may have taken memory.
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (at === 0) this.check(this.u32[this.codeAt] as number);
    return at;
  }

  /** The version of the encoded key's value; 0 when there is none. */
  version(keyLength: number, keyspace = RAW): number {
    const found = this.call(() => this.wasm.version(keyspace, keyLength));
    if (found < 0) throw this.failure(this.u32[this.codeAt] as number);
    this.uncertain = found === UNCERTAIN;
    return found === 0 ? 0 : (this.f64[(this.codeAt >>> 1) + 1] as number);
  }

  /** Whether lost writes may have changed or deleted the key whose version was asked for last. */
  isUncertain(): boolean {
    return this.uncertain;
  }

  // ---------------------------------------------------------------- writing

  set(key: Key, value: Value, keyspace = RAW): void {
    if (this.queueLimit !== 0 && this.waits(key, value, keyspace)) return;
    if (typeof value === "string") {
      this.setText(key, value, keyspace);
      return;
    }
    let bytes = value instanceof Uint8Array ? value : asBytes("value", value);
    const length = byteLengthOf(bytes);
    if (length <= SHORT_VALUE) {
      const keyLength = this.encodeKey(key);
      this.stage(bytes, length);
      this.setStaged(keyLength, length, keyspace);
      return;
    }
    if (bytes !== this.lastValue || bytes[0] === undefined) bytes = this.inspect(bytes, length);
    const at = this.setBegin(this.encodeKey(key), length, keyspace);
    this.u8.set(bytes, at);
    this.finish(length);
  }

  private setText(key: Key, text: string, keyspace: number): void {
    const { length } = text;
    const keyLength = this.encodeKey(key);
    let written = length <= SHORT_TEXT ? this.copyAscii(text, this.secondAt) : -1;
    if (written < 0) {
      refuseLoneSurrogates("value", text);
      if (length > LONG_TEXT) {
        this.set(key, encoder.encode(text), keyspace);
        return;
      }
      written = encoder.encodeInto(text, this.second).written;
    }
    this.setStaged(keyLength, written, keyspace);
  }

  /** Sets the encoded key to so many bytes of the second key area. */
  private setStaged(keyLength: number, length: number, keyspace: number): void {
    const areSeveral = this.queueLimit !== 0;
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.set(keyspace, keyLength, length);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (status !== OK) throw status < 0 ? this.failure(-status) : this.writeFailure(status);
    this.letSetsWait(areSeveral);
  }

  /** Stages a record of the encoded key. `finish` or `abort` has to follow. */
  setBegin(keyLength: number, capacity: number, keyspace: number): number {
    let at: number;
    try {
      at = this.wasm.set_begin(keyspace, keyLength, capacity) >>> 0;
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  /** Whether the key was there. */
  remove(key: Key, keyspace = RAW): boolean {
    return this.removeEncoded(this.encodeKey(key), keyspace);
  }

  removeEncoded(keyLength: number, keyspace: number): boolean {
    let before: number;
    let answer: number;
    this.changes += 1;
    try {
      before = this.wasm.pending();
      answer = this.exports.remove(keyspace, keyLength);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (answer < 0) {
      const code = this.u32[this.codeAt] as number;
      // Where there was no group, none is lost.
      throw before === 0 ? this.failure(code) : this.writeFailure(code);
    }
    return answer === 1;
  }

  // ---------------------------------------------------------------- changing in place

  /**
   * Stages the record of a key for change in place. Gives its address, or 0 when there is none; its
   * length is `foundLength()`. Then `finish` or `abort` has to follow.
   */
  updateBegin(key: Key): number {
    return this.updateBeginEncoded(this.encodeKey(key), RAW);
  }

  updateBeginEncoded(keyLength: number, keyspace: number): number {
    let at: number;
    if (this.queueLimit !== 0) this.settle();
    try {
      at = this.exports.update_begin(keyspace, keyLength) >>> 0;
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (at === 0) {
      const code = this.u32[this.codeAt] as number;
      if (code !== OK) throw this.failure(code);
    }
    return at;
  }

  /** Replaces the staged bytes by these and gives their length, for `finish`. */
  updateReplace(value: Value): number {
    if (typeof value === "string") refuseLoneSurrogates("value", value);
    let bytes =
      typeof value === "string"
        ? encoder.encode(value)
        : value instanceof Uint8Array
          ? value
          : asBytes("value", value);
    const length = byteLengthOf(bytes);
    const isShort = length <= SHORT_VALUE;
    if (isShort) this.stage(bytes, length);
    else bytes = this.inspect(bytes, length);
    const at = this.updateResize(length);
    if (isShort) this.u8.copyWithin(at, this.secondAt, this.secondAt + length);
    else this.u8.set(bytes, at);
    return length;
  }

  /** Room for so many bytes in place of those that are staged: its address. */
  updateResize(length: number): number {
    const at = this.call(() => this.wasm.update_resize(length)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  // ---------------------------------------------------------------- what is staged

  /** Ends the staged record, new or changed, with so many bytes of value. */
  finish(length: number): void {
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.finish(length);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    if (status !== OK) throw this.writeFailure(status);
  }

  /** Gives up the staged record. One that was being changed has every byte as it was. */
  abort(): void {
    this.call(this.wasm.abort);
  }

  // ---------------------------------------------------------------- pins

  /** Has a key's value stay as it is until `unpin`. Gives a handle, or 0 when there is none. */
  pin(key: Key): number {
    const keyLength = this.encodeKey(key);
    const handle = this.call(() => this.wasm.pin(RAW, keyLength)) >>> 0;
    if (handle === 0) this.check(this.u32[this.codeAt] as number);
    return handle;
  }

  /** A view of a pinned value. */
  pinned(handle: number): Uint8Array<ArrayBuffer> {
    const at = this.call(() => this.wasm.pinned(handle)) >>> 0;
    return new Uint8Array(this.buffer, at, this.u32[this.lengthAt]);
  }

  unpin(handle: number): void {
    this.call(() => this.wasm.unpin(handle));
  }
}
