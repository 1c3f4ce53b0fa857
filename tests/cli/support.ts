/** Runs the built command as a user would: as a separate program. */

import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, type OpenOptions, open } from "varve";
import { expect, onTestFinished } from "vitest";
import { context } from "../support/context.js";

export interface Ended {
  code: number | null;
  stdout: Buffer;
  stderr: string;
}

/** How the command is started, if not by this Node with pipes for all of its streams. */
export interface Start {
  /** The program and its flags before the command's file. */
  runtime?: readonly string[];
  /** Closes the pipe after this many bytes, as `head` does. */
  readAtMost?: number;
  /** A file descriptor for standard output. */
  stdout?: number;
  /** A file descriptor for standard error. */
  stderr?: number;
  cwd?: string;
  /** Maximum size of files in bytes, as on a full disk. */
  largestFile?: number;
  /** Limit of the address space in bytes. */
  addresses?: number;
}

/** The command's file, as the package names it. */
export function bin(): string {
  return join(context().root, "dist/node/cli.js");
}

/** Runs `varve` with these arguments to its end. */
export function varve(args: readonly string[], start: Start = {}): Promise<Ended> {
  const {
    runtime = [process.execPath, ...process.execArgv],
    readAtMost = Number.POSITIVE_INFINITY,
    cwd,
  } = start;
  const whole = [...limited(start), ...runtime, bin(), ...args];
  const [program = "", ...words] = whole;
  const child = spawn(program, words, {
    stdio: ["ignore", start.stdout ?? "pipe", start.stderr ?? "pipe"],
    cwd,
    timeout: 240_000,
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const chunks: Buffer[] = [];
  let bytes = 0;
  let stderr = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes >= readAtMost) child.stdout?.destroy();
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk) => {
    stderr += chunk;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout: Buffer.concat(chunks), stderr }));
  });
}

/** The output of a command that succeeds without messages. */
export async function printed(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await varve(args);
  expect(stderr, args.join(" ")).toBe("");
  expect(code, args.join(" ")).toBe(0);
  return stdout.toString();
}

/** A shell that sets the limit, in blocks of 512 bytes or in kilobytes, and becomes the program. */
function limited({ largestFile, addresses }: Start): string[] {
  let limit: string;
  if (largestFile !== undefined) limit = `ulimit -f ${Math.floor(largestFile / 512)}; trap "" XFSZ`;
  else if (addresses !== undefined) limit = `ulimit -v ${Math.floor(addresses / 1024)}`;
  else return [];
  return ["sh", "-c", `${limit}; exec "$@"`, "sh"];
}

let folders = 0;

/** A fresh folder, removed after the test. */
export function folder(): string {
  folders += 1;
  const path = join(context().directory ?? ".", `cli-${folders}`);
  mkdirSync(path, { recursive: true });
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** The path of a closed database that `fill` has written. */
export async function database(
  fill: (db: Database) => void | Promise<void>,
  options: OpenOptions = {},
): Promise<string> {
  const directory = folder();
  const db = await open("shop", { storage: file(directory), ...options });
  await fill(db);
  await db.close();
  return join(directory, "shop.varve");
}

/** A copy of a golden file. */
export function golden(name: string): string {
  const path = join(folder(), `${name}.varve`);
  copyFileSync(join(context().root, `tests/vectors/golden/${name}.varve`), path);
  return path;
}
