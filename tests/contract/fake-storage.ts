/** A storage that records every call and fails on demand. */

import type { OpenedStorage, Storage, StorageFile } from "varve";

/** One call that reached the file. */
export interface Call {
  op: "read" | "write" | "truncate" | "flush" | "close";
  at: number;
  length: number;
  /** The time, in milliseconds. */
  time: number;
}

/** The outcome of a call: normal, a short count, or a thrown error. */
export type Fault = undefined | number | Error;

/** Errors in the form in which the platforms throw them. */
export const platform = {
  /** Chromium over quota. */
  quota: (): Error =>
    new DOMException("No space left in this origin's share", "QuotaExceededError"),
  /** Node on a full disk. */
  enospc: (): Error =>
    Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" }),
  /** Deno on a file of the maximum size, and in similar cases: an error without a code. */
  efbig: (): Error => new Error("File too large (os error 27)"),
  /** A sync access handle that the browser has closed. */
  lost: (): Error => new DOMException("The access handle was already closed", "InvalidStateError"),
  /** Any other error. */
  io: (): Error => Object.assign(new Error("EIO: i/o error"), { code: "EIO" }),
};

/** One file in memory, for one database at a time. */
export class FakeStorage implements Storage {
  readonly kind = "fake";
  readonly calls: Call[] = [];
  openFiles = 0;
  /** The file's bytes, with spare capacity, so that appends rarely copy them. */
  private buffer = new Uint8Array(0);
  private size = 0;
  /** Decides the outcome of each call. */
  fault: (call: Call) => Fault = () => undefined;
  /** The engine's exit hook; called with `true` when the program may end. */
  exit: ((goesOn?: boolean) => void) | undefined;

  /** The content of the file, at the start of its buffer. */
  get content(): Uint8Array<ArrayBuffer> {
    return this.buffer.subarray(0, this.size);
  }

  set content(bytes: Uint8Array<ArrayBuffer>) {
    this.buffer = bytes;
    this.size = bytes.length;
  }

  /** Makes the file at least this long. */
  extend(size: number): void {
    if (size > this.buffer.length) {
      const longer = new Uint8Array(2 * size);
      longer.set(this.content);
      this.buffer = longer;
    }
    this.size = Math.max(this.size, size);
  }

  identity(): unknown {
    return this;
  }

  async open(): Promise<OpenedStorage> {
    this.openFiles += 1;
    return {
      file: new FakeFile(this),
      onExit: (commit) => {
        this.exit = commit;
        return () => {
          this.exit = undefined;
        };
      },
    };
  }

  /** The calls of one kind since the last `forget`. */
  count(op: Call["op"]): number {
    return this.calls.filter((call) => call.op === op).length;
  }

  /** When the calls were made that change or flush the file. */
  get times(): number[] {
    return this.calls.filter(({ op }) => op === "write" || op === "flush").map(({ time }) => time);
  }

  /** Waits until the calls are these, or for longer than any machine needs. */
  async reaches(order: string): Promise<void> {
    const end = performance.now() + 60_000;
    while (this.order !== order && performance.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    if (this.order !== order) throw new Error(`calls to the file: "${this.order}", not "${order}"`);
  }

  /** The kinds of calls that change or flush the file since the last `forget`, in order. */
  get order(): string {
    return this.calls
      .filter(({ op }) => op === "write" || op === "flush")
      .map(({ op }) => op)
      .join(" ");
  }

  forget(): void {
    this.calls.length = 0;
  }

  /** Another storage with the same bytes, as a crash at this moment leaves them. */
  crashed(): FakeStorage {
    const left = new FakeStorage();
    left.content = this.content.slice();
    return left;
  }

  /** Records a call and returns its outcome. */
  meet(op: Call["op"], at: number, length: number): number | undefined {
    const call = { op, at, length, time: performance.now() };
    this.calls.push(call);
    const fault = this.fault(call);
    if (fault instanceof Error) throw fault;
    return fault;
  }
}

class FakeFile implements StorageFile {
  private readonly storage: FakeStorage;
  private closed = false;

  constructor(storage: FakeStorage) {
    this.storage = storage;
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const { content } = this.storage;
    const wanted = Math.max(0, Math.min(buffer.length, content.length - at));
    const count = Math.min(wanted, this.storage.meet("read", at, buffer.length) ?? wanted);
    buffer.set(content.subarray(at, at + count));
    return count;
  }

  write(buffer: Uint8Array, { at }: { at: number }): number {
    const count = this.storage.meet("write", at, buffer.length) ?? buffer.length;
    this.storage.extend(at + count);
    this.storage.content.set(buffer.subarray(0, count), at);
    return count;
  }

  truncate(size: number): void {
    this.storage.meet("truncate", size, 0);
    this.storage.extend(size);
    this.storage.content = this.storage.content.slice(0, size);
  }

  getSize(): number {
    return this.storage.content.length;
  }

  flush(): void {
    this.storage.meet("flush", 0, 0);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.storage.calls.push({ op: "close", at: 0, length: 0, time: performance.now() });
    this.storage.openFiles -= 1;
  }
}
