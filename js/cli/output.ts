/** Standard output with back pressure, and progress on a terminal. */

import { monotonicNow } from "../util/clock.js";

/** The exit codes. They are documented in the help text and never change. */
export const EXIT = {
  /** The command did what it was asked. */
  well: 0,
  /** The answer is no: there is no such key, or there is damage. */
  no: 1,
  /** The command was not understood. */
  usage: 2,
  /** The file cannot be read, or what is asked for cannot be written. */
  unreadable: 3,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Ends the command with a message for its user. */
export class Failure extends Error {
  constructor(
    readonly exit: ExitCode,
    message: string,
  ) {
    super(message);
  }
}

/** Whoever read the output has seen enough: nothing is wrong. */
export class OutputClosed extends Error {}

/** The code of an error of the package or the platform. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

/** So much is gathered before it is written. */
const CHUNK = 65_536;

/** Standard output. It holds back whoever writes faster than it is read. */
export class Output {
  readonly #stream: NodeJS.WriteStream;
  #text = "";
  #failure: Error | undefined;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // EPIPE: `varve list … | head` has seen enough.
      this.#failure ??=
        error.code === "EPIPE"
          ? new OutputClosed()
          : new Failure(EXIT.unreadable, `The output cannot be written: ${error.message}.`);
    });
  }

  /** Adds text. The promise is there to be waited for when there is one. */
  print(text: string): Promise<void> | undefined {
    this.#text += text;
    return this.#text.length < CHUNK ? undefined : this.#pass();
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#pass();
    await this.#hand(bytes);
  }

  /** Waits until all was taken. */
  async end(): Promise<void> {
    await this.#pass();
    await this.#hand("");
  }

  async #pass(): Promise<void> {
    const text = this.#text;
    this.#text = "";
    if (text !== "") await this.#hand(text);
  }

  async #hand(data: string | Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    // The callback comes when it was taken by whoever reads, or when that failed.
    await new Promise<void>((resolve) => this.#stream.write(data, () => resolve()));
    // The error is told beside the callback, in either order.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#failure !== undefined) throw this.#failure;
  }
}

/** How long it takes before it is worth telling that it takes long. */
const PATIENCE_MS = 300;
const BEAT_MS = 100;

/** A line on a terminal that tells how far things are, and goes when they are done. */
export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #start = monotonicNow();
  #told = 0;
  #line = "";

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
  }

  print(what: string, done: number, total: number): void {
    const now = monotonicNow();
    if (!this.#stream.isTTY || now - this.#start < PATIENCE_MS || now - this.#told < BEAT_MS)
      return;
    this.#told = now;
    const percent = total > 0 ? Math.min(100, Math.floor((100 * done) / total)) : 100;
    const line = `${what}: ${percent} %`;
    if (line !== this.#line) this.#stream.write(`\r${line}\x1b[K`);
    this.#line = line;
  }

  /** Takes the line away. */
  end(): void {
    if (this.#told > 0) this.#stream.write("\r\x1b[K");
    this.#told = 0;
  }
}
