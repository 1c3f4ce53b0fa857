/** A storage of two files that records their calls, and the states in which a power loss may leave them. */

import { FakeStorage } from "./fake-storage.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** A write that reached one of two files, to be replayed in part. */
interface Event {
  readonly file: 0 | 1;
  readonly op: "write" | "truncate" | "flush";
  readonly at: number;
  readonly bytes: Bytes;
}

/** Two files that record their calls: the main file and its shadow. */
export class TwoFiles extends FakeStorage {
  readonly events: Event[] = [];
  next = new FakeStorage();
  /** Whether the shadow takes the place of the main file in one step, and not by copying. */
  private readonly inOneStep: boolean;

  constructor(inOneStep: boolean) {
    super();
    this.inOneStep = inOneStep;
  }

  override async open() {
    const { file, ...more } = await super.open();
    const { next } = this;
    next.fault = (call) => this.fault(call);
    const openReplacement = async () => {
      const { file: other } = await next.open();
      const takeOver = () => {
        other.close();
        this.content = next.content;
        this.events.length = 0;
        next.content = new Uint8Array(0);
      };
      const remove = () => {
        other.close();
        next.content = new Uint8Array(0);
        this.note(1, "truncate", 0);
      };
      return { file: this.noting(other, 1), remove, ...(this.inOneStep && { takeOver }) };
    };
    return { ...more, file: this.noting(file, 0), openReplacement };
  }

  private note(file: 0 | 1, op: Event["op"], at = 0, bytes: Uint8Array = new Uint8Array(0)) {
    this.events.push({ file, op, at, bytes: bytes.slice() as Bytes });
  }

  private noting(file: Awaited<ReturnType<FakeStorage["open"]>>["file"], number: 0 | 1) {
    return {
      read: (buffer: Uint8Array, options: { at: number }) => file.read(buffer, options),
      write: (buffer: Uint8Array, { at }: { at: number }) => {
        const count = file.write(buffer, { at });
        this.note(number, "write", at, buffer.subarray(0, count));
        return count;
      },
      truncate: (size: number) => {
        file.truncate(size);
        this.note(number, "truncate", size);
      },
      getSize: () => file.getSize(),
      flush: () => {
        file.flush();
        this.note(number, "flush");
      },
      close: () => file.close(),
    };
  }

  /** The result of a power loss after this many calls: everything flushed, and a random part of the rest. */
  after(
    before: readonly [Bytes, Bytes],
    calls: number,
    chance: (below: number) => number,
  ): TwoFiles {
    const left = new TwoFiles(this.inOneStep);
    const files = [left, left.next] as const;
    for (const file of [0, 1] as const) {
      files[file].content = before[file].slice();
      const events = this.events.slice(0, calls).filter((event) => event.file === file);
      const flushed = events.map(({ op }) => op).lastIndexOf("flush");
      for (const [i, { op, at, bytes }] of events.entries()) {
        // The last call may have been done in part.
        const part = i < flushed ? 3 : chance(4);
        if (op === "flush" || part === 0) continue;
        const length = part === 1 ? chance(bytes.length + 1) : bytes.length;
        if (op === "truncate") {
          files[file].extend(at);
          files[file].content = files[file].content.slice(0, at);
        } else {
          files[file].extend(at + length);
          files[file].content.set(bytes.subarray(0, length), at);
        }
      }
    }
    return left;
  }
}
