/** The file as the wasm module calls it. */

import { ioCode, type StorageFile } from "../storage/storage.js";
import { newDecoder } from "../util/text-coders.js";

/** The file as the wasm module calls it: nothing is thrown into wasm, every failure is a code. */
export class Host {
  /** Set once the instance exists. */
  memory: WebAssembly.Memory | undefined;
  panic: string | undefined;
  /** Hears of every read: a cold record may have taken memory that the turn's end gives back. */
  onRead: () => void;
  /** While opening: hears how many bytes each read brought. What it throws ends the reading. */
  onBytes: ((count: number) => void) | undefined;
  /** Whether views were given in this turn that are promised to live until it ends. */
  areViewsHeld: () => boolean;
  /** Hears that values are to be given as copies from now on, until the turn ends. */
  onCrowded: () => void;
  /** How often the file was read, and how many bytes that brought. */
  reads: number;
  readBytes: number;
  /** The memory's buffer and all of it, until it grows. To ask an array for its buffer is a call into V8. */
  private buffer: ArrayBuffer;
  private all: Uint8Array<ArrayBuffer>;
  readonly file: StorageFile;
  private readonly readOnly: boolean;
  private cause: unknown;
  private failed: boolean;

  constructor(file: StorageFile, readOnly: boolean) {
    this.memory = undefined;
    this.panic = undefined;
    this.onRead = () => {};
    this.onBytes = undefined;
    this.areViewsHeld = () => false;
    this.onCrowded = () => {};
    this.reads = 0;
    this.readBytes = 0;
    this.buffer = new ArrayBuffer(0);
    this.all = new Uint8Array(this.buffer);
    this.file = file;
    this.readOnly = readOnly;
    this.cause = undefined;
    this.failed = false;
  }

  /** What the file threw last, for an error's options. */
  takeCause(): { cause?: unknown } {
    const options = this.failed ? { cause: this.cause } : {};
    this.cause = undefined;
    this.failed = false;
    return options;
  }

  /** Lets go of the memory. Its detached buffers, too, keep all of it: V8 leads from each to its memory. */
  abandon(): void {
    this.memory = undefined;
    this.buffer = new ArrayBuffer(0);
    this.all = new Uint8Array(this.buffer);
  }

  imports(): Record<string, (...given: number[]) => number | undefined> {
    const { file } = this;
    return {
      // Called for each cold record: what the others leave to `guard` stands here itself.
      read: (at = 0, length = 0, position = 0) => {
        try {
          this.onRead();
          const count = counted(file.read(this.bytes(at, length), { at: position }), length);
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
          return counted(file.write(this.bytes(at, length), { at: position }), length);
        }),
      truncate: (size = 0) =>
        this.guard(() => {
          this.refuseReadOnly();
          file.truncate(size);
          return 0;
        }),
      size: () => this.guard(() => file.getSize()),
      flush: () =>
        this.guard(() => {
          // Nothing was written, and some platforms refuse to flush such a file.
          if (!this.readOnly) file.flush();
          return 0;
        }),
      // Called before memory is used again that views of this turn may show.
      detach: () => {
        this.memory?.grow(0);
        return undefined;
      },
      views_held: () => (this.areViewsHeld() ? 1 : 0),
      crowded: () => {
        this.onCrowded();
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
    // The memory may have grown within the very call that asks. To ask it each time costs more than to
    // look whether a view of it still lives.
    if (this.all.length === 0) {
      this.buffer = this.memory?.buffer as ArrayBuffer;
      this.all = new Uint8Array(this.buffer);
    }
    return new Uint8Array(this.buffer, at >>> 0, length >>> 0);
  }

  /** The engine writes nothing then; that it could not is what the promise rests on. */
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

/** A file that miscounts must not lead the engine to trust bytes that nobody wrote. */
function counted(count: number, length: number): number {
  if (Number.isInteger(count) && count >= 0 && count <= length >>> 0) return count;
  throw new RangeError(`The file returned ${count} for a request of ${length >>> 0} bytes.`);
}
