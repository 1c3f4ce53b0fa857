/** Programs and threads in the runtime that runs the tests: Node, Deno or Bun. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { onTestFinished } from "vitest";
import { context } from "../../support/context.js";

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** A running program; killed after the test if it still runs. */
export interface Program {
  child: ChildProcess;
  ended: Promise<Ended>;
}

let counter = 0;

/** A module in a file, with all exports of the package as globals by name. */
function moduleOf(source: string): string {
  counter += 1;
  const folder = join(context().root, ".build", "programs");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `${process.pid}-${counter}.mjs`);
  const varve = pathToFileURL(join(context().root, "dist/index.js")).href;
  writeFileSync(
    path,
    `import * as varve from ${JSON.stringify(varve)};
     import { parentPort } from "node:worker_threads";
     const { open, file, memory } = varve;\n${source}`,
  );
  onTestFinished(() => rmSync(path, { force: true }));
  return path;
}

/** The first lines of a program that opens a database of this folder by `shop(options)`. */
export function shopIn(directory: string): string {
  return `const shop = (options) => open("shop", { storage: file(${JSON.stringify(directory)}), ...options });\n`;
}

/**
 * Starts a program in this runtime, and kills it after the test. In Deno it has all permissions, or only these.
 */
export function starts(source: string, allowed?: readonly string[]): Program {
  return startsBy(commandFor(source, allowed));
}

/** The command that runs a program in this runtime. */
export function commandFor(source: string, allowed: readonly string[] = ["--allow-all"]): string[] {
  const isDeno = context().runtime === "deno";
  const flags = isDeno ? ["run", "--no-prompt", "--no-lock", ...allowed] : process.execArgv;
  return [process.execPath, ...flags, moduleOf(source)];
}

/** Starts a program by a command. */
export function startsBy([command = "", ...args]: readonly string[]): Program {
  const child = spawn(command, args, {
    cwd: context().root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      output[name] += text;
    });
  }
  const ended = new Promise<Ended>((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal, ...output }));
  });
  return { child, ended };
}

/** Waits until a program has printed something; rejects if it ends without output. */
export function hasOutput({ child, ended }: Program): Promise<void> {
  return new Promise((resolve, reject) => {
    child.stdout?.once("data", () => resolve());
    ended.then(({ code, signal, stderr }) => {
      reject(new Error(`it ended without output (${signal ?? code}): ${stderr}`));
    });
  });
}

/** A thread of this process. It is terminated after the test if it still runs. */
export class Thread {
  /** The first message of the thread, by `parentPort.postMessage`; rejects if it fails or ends before. */
  readonly firstMessage: Promise<unknown>;
  readonly ended: Promise<void>;
  readonly #worker: Worker;

  constructor(source: string) {
    this.#worker = new Worker(pathToFileURL(moduleOf(source)));
    this.firstMessage = new Promise((resolve, reject) => {
      this.#worker.once("message", resolve);
      this.#worker.once("error", reject);
      this.#worker.once("exit", () => reject(new Error("it ended without output")));
    });
    // A test that does not await the message ignores the reason for its absence.
    this.firstMessage.catch(() => undefined);
    this.ended = new Promise((resolve) => {
      this.#worker.once("exit", () => resolve());
    });
    onTestFinished(() => this.terminate());
  }

  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }
}
