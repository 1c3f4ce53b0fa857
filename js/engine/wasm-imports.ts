/** The imports of the wasm module: functions through which it reads and writes the file. */

import { ioCode, type StorageFile } from "../storage/storage.js";
import { newDecoder } from "../util/text-coders.js";

/** Implements the imports of one instance. They never throw into wasm; every failure is returned as a code. */
export class Host {
  /** Set once the instance exists. */
  memory: WebAssembly.Memory | undefined;
  panic: string | undefined;
  /** Called for every read: a cold record may have allocated memory that the end of the turn frees. */
  onRead: () => void;
  /** While opening, called with the number of bytes of each read. If it throws, the read fails. */
  onBytes: ((count: number) => void) | undefined;
  /** Whether views were given out in this turn that must stay valid until it ends. */
  areViewsHeld: () => boolean;
  /** Called when values have to be returned as copies until the turn ends. */
  onStartCopying: () => void;
  /** Number of reads of the file, and of the bytes read. */
  reads: number;
  readBytes: number;
  /** The memory's buffer and a view of all of it, until it grows. Reading an array's `buffer` is a call into V8. */
  private buffer: ArrayBuffer;
  private all: Uint8Array<ArrayBuffer>;
  /** Set before the instance is first called. */
  file!: StorageFile;
  private readOnly: boolean;
  private cause: unknown;
  private failed: boolean;

  constructor() {
    this.memory = undefined;
    this.panic = undefined;
    this.onRead = () => {};
    this.onBytes = undefined;
    this.areViewsHeld = () => false;
    this.onStartCopying = () => {};
    this.reads = 0;
    this.readBytes = 0;
    this.buffer = new ArrayBuffer(0);
    this.all = new Uint8Array(this.buffer);
    this.readOnly = true;
    this.cause = undefined;
    this.failed = false;
  }

  /** Gives the instance its file. */
  use(file: StorageFile, readOnly: boolean): void {
    this.file = file;
    this.readOnly = readOnly;
  }

  /** The error that the file threw last, as the options of an error. */
  takeCause(): { cause?: unknown } {
    const options = this.failed ? { cause: this.cause } : {};
    this.cause = undefined;
    this.failed = false;
    return options;
  }

  /** Drops all references to the memory. Detached buffers count, because V8 keeps the memory of each alive. */
  abandon(): void {
    this.memory = undefined;
    this.buffer = new ArrayBuffer(0);
    this.all = new Uint8Array(this.buffer);
  }

  imports(): Record<string, (...given: number[]) => number | undefined> {
    return {
      // Called for each cold record, so `guard` is inlined here.
      read: (at = 0, length = 0, position = 0) => {
        try {
          this.onRead();
          const count = counted(this.file.read(this.bytes(at, length), { at: position }), length);
          this.reads += 1;
          this.readBytes += count;
          this.onBytes?.(count);
          return count;
        } catch (thrown) {
          return this.failedBy(thrown);
        }
      },
      write: (at = 0, length = 0, position = 0) =>
        this.guard(() => {
          this.refuseReadOnly();
          return counted(this.file.write(this.bytes(at, length), { at: position }), length);
        }),
      truncate: (size = 0) =>
        this.guard(() => {
          this.refuseReadOnly();
          this.file.truncate(size);
          return 0;
        }),
      size: () => this.guard(() => this.file.getSize()),
      flush: () =>
        this.guard(() => {
          // A read-only file has nothing to flush, and some platforms refuse to flush it.
          if (!this.readOnly) this.file.flush();
          return 0;
        }),
      // Called before memory is reused that views of this turn may show.
      detach: () => {
        this.memory?.grow(0);
        return undefined;
      },
      views_held: () => (this.areViewsHeld() ? 1 : 0),
      start_copying: () => {
        this.onStartCopying();
        return undefined;
      },
      panicked: (file = 0, length = 0, line = 0) => {
        const name = newDecoder().decode(this.bytes(file, length).slice());
        this.panic = `panicked at ${name}:${line}`;
        return undefined;
      },
    };
  }

  private bytes(at: number, length: number): Uint8Array<ArrayBuffer> {
    // The memory may have grown within this call. Checking a view's length is cheaper than reading its buffer.
    if (this.all.length === 0) {
      this.buffer = this.memory?.buffer as ArrayBuffer;
      this.all = new Uint8Array(this.buffer);
    }
    return new Uint8Array(this.buffer, at >>> 0, length >>> 0);
  }

  /** Enforces `readOnly`. The engine does not write then, but this makes it impossible. */
  private refuseReadOnly(): void {
    if (this.readOnly) throw new Error("The file is open read-only.");
  }

  private guard(fileCall: () => number): number {
    try {
      return fileCall();
    } catch (thrown) {
      return this.failedBy(thrown);
    }
  }

  private failedBy(thrown: unknown): number {
    this.cause = thrown;
    this.failed = true;
    return ioCode(thrown);
  }
}

/** Checks a count that a file returned, so that a wrong one cannot make the engine use bytes that were not read. */
function counted(count: number, length: number): number {
  if (Number.isInteger(count) && count >= 0 && count <= length >>> 0) return count;
  throw new RangeError(`The file returned ${count} for a request of ${length >>> 0} bytes.`);
}
