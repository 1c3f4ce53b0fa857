/**
 * A storage of one database that fails on demand, and copies its contents: the state that a crash at that
 * moment leaves.
 */

import type { OpenedStorage, Storage, StorageFile } from "varve";

/** The calls of a file that fail, and the kind of failure. */
export interface Fault {
  readonly call: "read" | "write" | "flush" | "any";
  readonly harm: Harm;
  /** The number of these calls that succeed before. */
  readonly after: number;
  /** The number of calls that fail. */
  readonly times: number;
}

/** The failures of browsers and Node: an exception, or a short count, which for reads is no failure. */
export type Harm = "quota" | "enospc" | "io" | "a short count" | "a count of nothing";

const ERRORS: Readonly<Partial<Record<Harm, () => Error>>> = {
  quota: () => new DOMException("No space left in this origin's share", "QuotaExceededError"),
  enospc: () => Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" }),
  io: () => Object.assign(new Error("EIO: i/o error"), { code: "EIO" }),
};

export class FaultyStorage implements Storage {
  readonly kind = "faulty";
  /** Whether a fault has occurred since it was armed. */
  struck: boolean;
  private content: Uint8Array<ArrayBuffer>;
  private size: number;
  private fault: Fault | undefined;
  private met: number;

  constructor(content: Uint8Array<ArrayBuffer> = new Uint8Array(0)) {
    this.content = content;
    this.size = content.length;
    this.struck = false;
    this.fault = undefined;
    this.met = 0;
  }

  identity(): unknown {
    return this;
  }

  async open(): Promise<OpenedStorage> {
    return { file: this.file() };
  }

  /** Another storage with the same bytes and without faults. */
  crashed(): FaultyStorage {
    return new FaultyStorage(this.content.slice(0, this.size));
  }

  arm(fault: Fault): void {
    this.fault = fault;
    this.met = 0;
  }

  heal(): void {
    this.fault = undefined;
    this.struck = false;
  }

  /** The number of bytes of a call that are processed. Throws if the fault is an error. */
  private meet(call: Fault["call"], length: number): number {
    const { fault } = this;
    if (fault === undefined || (fault.call !== call && fault.call !== "any")) return length;
    const { harm, after, times } = fault;
    const turn = this.met++;
    if (turn < after || turn >= after + times) return length;
    const error = ERRORS[harm]?.();
    // A read of no bytes would mean the end of the file.
    if (error === undefined && call === "read") return Math.ceil(length / 2);
    this.struck = true;
    if (error !== undefined) throw error;
    if (call !== "write") throw ERRORS.io?.();
    return harm === "a short count" ? length >> 1 : 0;
  }

  private file(): StorageFile {
    return {
      read: (buffer, { at }) => {
        const there = Math.max(0, Math.min(buffer.length, this.size - at));
        const count = this.meet("read", there);
        buffer.set(this.content.subarray(at, at + count));
        return count;
      },
      write: (buffer, { at }) => {
        const count = this.meet("write", buffer.length);
        if (count > 0) this.reach(at + count);
        this.content.set(buffer.subarray(0, count), at);
        return count;
      },
      truncate: (size) => {
        this.meet("any", 0);
        this.content.fill(0, Math.min(size, this.size), this.size);
        this.size = Math.min(size, this.size);
        this.reach(size);
      },
      getSize: () => this.size,
      flush: () => {
        this.meet("flush", 0);
      },
      close: () => {},
    };
  }

  private reach(size: number): void {
    if (size <= this.size) return;
    if (size > this.content.length) {
      const longer = new Uint8Array(Math.max(size, this.content.length * 2));
      longer.set(this.content);
      this.content = longer;
    }
    this.size = size;
  }
}
