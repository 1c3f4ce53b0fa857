/** Standard output with back pressure, and progress on a terminal. */

import { monotonicNow } from "../util/clock.js";

/** The exit codes. They are documented in the help text and never change. */
export const EXIT = {
  /** The command did what it was asked. */
  ok: 0,
  /** The result is negative: the key is missing, or there is damage. */
  negative: 1,
  /** The command was not understood. */
  usage: 2,
  /** The file cannot be read, or the output cannot be written. */
  unreadable: 3,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** An error that ends the command with a message. */
export class Failure extends Error {
  constructor(
    readonly exit: ExitCode,
    message: string,
  ) {
    super(message);
  }
}

/** Whether an error means that the reader of the output has closed the pipe, which is not a problem. */
export class OutputClosed extends Error {}

/** The code of an error of the package or of the platform. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

/** Output is buffered up to this size. */
const CHUNK = 65_536;

/** Standard output with back pressure. */
export class Output {
  readonly #stream: NodeJS.WriteStream;
  #text = "";
  #failure: Error | undefined;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // EPIPE: the reader has seen enough, as in `varve list … | head`.
      this.#failure ??=
        error.code === "EPIPE"
          ? new OutputClosed()
          : new Failure(EXIT.unreadable, `The output cannot be written: ${error.message}.`);
    });
  }

  /** Adds text. Returns a promise to await if the buffer is full. */
  print(text: string): Promise<void> | undefined {
    this.#text += text;
    return this.#text.length < CHUNK ? undefined : this.#pass();
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#pass();
    await this.#write(bytes);
  }

  /** Waits until all output was taken. */
  async end(): Promise<void> {
    await this.#pass();
    await this.#write("");
  }

  async #pass(): Promise<void> {
    const text = this.#text;
    this.#text = "";
    if (text !== "") await this.#write(text);
  }

  async #write(data: string | Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    // The callback is called when the reader has taken the output, or when that failed.
    await new Promise<void>((resolve) => this.#stream.write(data, () => resolve()));
    // The error is emitted as an event too, before or after the callback.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#failure !== undefined) throw this.#failure;
  }
}

/** Progress is shown only after this time. */
const QUIET_MS = 300;
const INTERVAL_MS = 100;

/** A progress line on a terminal, which is removed at the end. */
export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #start = monotonicNow();
  #printedAt = 0;
  #line = "";

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
  }

  print(what: string, done: number, total: number): void {
    const now = monotonicNow();
    if (!this.#stream.isTTY || now - this.#start < QUIET_MS || now - this.#printedAt < INTERVAL_MS)
      return;
    this.#printedAt = now;
    const percent = total > 0 ? Math.min(100, Math.floor((100 * done) / total)) : 100;
    const line = `${what}: ${percent} %`;
    if (line !== this.#line) this.#stream.write(`\r${line}\x1b[K`);
    this.#line = line;
  }

  /** Removes the line. */
  end(): void {
    if (this.#printedAt > 0) this.#stream.write("\r\x1b[K");
    this.#printedAt = 0;
  }
}
