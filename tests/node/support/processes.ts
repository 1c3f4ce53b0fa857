/** Other processes that open database files, driven by messages. */

import { type ChildProcess, fork } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { context } from "../../support/context.js";

interface Answer {
  id: number;
  result?: Record<string, number>;
  error?: { name: string; code?: string; pid?: number; message: string };
}

/** The error that a command of `holder.mjs` threw. */
export class RemoteError extends Error {
  readonly code: string | undefined;
  readonly pid: number | undefined;

  constructor({ name, code, pid, message }: NonNullable<Answer["error"]>) {
    super(message);
    this.name = name;
    this.code = code;
    this.pid = pid;
  }
}

/** A process running `holder.mjs`; ended after the test. */
export class Holder {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  readonly #ended: Promise<number | null>;
  #next = 1;
  /** Its output on standard error. */
  #errorOutput = "";

  private constructor(flags: string[]) {
    this.#child = fork(join(context().root, "tests/node/support/holder.mjs"), flags, {
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      execArgv: context().runtime === "node" ? process.execArgv : [],
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errorOutput += text;
    });
    this.#child.on("message", (answer: Answer) => this.#receive(answer));
    // If the message cannot be sent, report that the process ended.
    this.#child.on("error", () => undefined);
    this.#ended = new Promise((resolve) => this.#child.on("close", resolve));
    onTestFinished(async () => {
      await this.kill();
    });
  }

  #receive(answer: Answer): void {
    this.#waiting.get(answer.id)?.(answer);
    this.#waiting.delete(answer.id);
  }

  async #answerTo(id: number): Promise<Record<string, number>> {
    void this.#ended.then(() => {
      const message = `the process ended: ${this.#errorOutput}`;
      this.#receive({ id, error: { name: "Error", code: "ENDED", message } });
    });
    const answer = await new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    if (answer.error !== undefined) throw new RemoteError(answer.error);
    return answer.result ?? {};
  }

  /**
   * With "--delays" its file calls are delayed at random, so that the steps of processes interleave. With "--full"
   * the disk has no space for the content of a lock.
   */
  static async start(...flags: ("--delays" | "--full")[]): Promise<Holder> {
    const holder = new Holder(flags);
    await holder.#answerTo(0);
    return holder;
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  /** Runs a command there and returns its result; throws a `RemoteError` for its error. */
  run(command: string, options: Record<string, unknown> = {}): Promise<Record<string, number>> {
    const id = this.#next;
    this.#next += 1;
    const answer = this.#answerTo(id);
    this.#child.send({ id, command, options });
    return answer;
  }

  /** Kills the process as a crash would, and waits until it is gone. Returns its exit code. */
  async kill(): Promise<number | null> {
    this.#child.kill("SIGKILL");
    return this.#ended;
  }

  /** Waits until the process has ended by itself. */
  ended(): Promise<number | null> {
    return this.#ended;
  }
}

/** The fields of a lock's content, in order. */
const FIELDS = ["token", "pid", "started", "thread", "boot", "space", "host", "name"] as const;
export type LockFields = Record<(typeof FIELDS)[number], string>;

/** The fields of a lock. */
export function lockFields(content: string): LockFields {
  const fields = content.trimEnd().split(" ");
  return Object.fromEntries(FIELDS.map((name, index) => [name, fields[index]])) as LockFields;
}

/** The content of a lock file with these fields. */
export function lockContent(fields: LockFields): string {
  return `${FIELDS.map((name) => fields[name]).join(" ")}\n`;
}

let folders = 0;

/** A fresh folder, removed after the test. */
export function folder(): string {
  folders += 1;
  const path = join(context().directory ?? ".", `folder-${folders}`);
  mkdirSync(path, { recursive: true });
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
