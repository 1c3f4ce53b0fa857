// Shared by all scripts. Needs nothing but Node: it runs before anything is installed.

import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
export const isMain = (url) => resolve(process.argv[1] ?? "") === fileURLToPath(url);

/** A problem that the user can solve: printed without a stack trace. */
export class Problem extends Error {}

/** Progress goes to stderr, so that stdout contains only what a script prints for machines. */
export function say(line) {
  process.stderr.write(`${line}\n`);
}

/** Runs `main`; if it fails, prints the error and sets the exit code. */
export function entry(main) {
  Promise.resolve()
    .then(main)
    .catch((error) => {
      say(error instanceof Problem ? `\nvarve: ${error.message}` : String(error?.stack ?? error));
      process.exitCode = 1;
    });
}

/**
 * Runs a program in the repository. Its output is forwarded as it arrives, unless `echo` is false. With
 * `capture` it is also returned, stdout and stderr mixed in order of arrival.
 */
export function execute(
  command,
  args,
  { env = {}, cwd = root, capture = false, echo = true, timeout } = {},
) {
  return new Promise((done, fail) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      timeout,
      killSignal: "SIGKILL",
    });
    let output = "";
    const pass = (chunk) => {
      if (echo) process.stderr.write(chunk);
      if (capture) output += chunk;
    };
    child.stdout.setEncoding("utf8").on("data", pass);
    child.stderr.setEncoding("utf8").on("data", pass);
    child.on("error", (error) =>
      fail(error.code === "ENOENT" ? new Problem(`${command} is not installed.`) : error),
    );
    child.on("close", (code, signal) => done({ code: code ?? 1, signal, output }));
  });
}

/** Like `execute`, but throws if the program fails. */
export async function must(command, args, options) {
  const { code, signal, output } = await execute(command, args, options);
  if (code === 0) return output;
  throw new Problem(`${[command, ...args].join(" ")} failed (${signal ?? `exit code ${code}`}).`);
}

/** A program's trimmed stdout, or `undefined` when the program is missing or fails. */
export function ask(command, args, options = {}) {
  const { status, stdout } = spawnSync(command, args, { cwd: root, encoding: "utf8", ...options });
  return status === 0 ? stdout.trim() : undefined;
}

/** Path of a JavaScript program in node_modules, to run with `process.execPath`. */
export function tool(path) {
  const found = join(root, "node_modules", path);
  if (!existsSync(found)) throw new Problem(`${path} is missing. Run: npm ci`);
  return found;
}

/** All files below a folder except node_modules, as sorted paths with "/" relative to the repository. */
export function filesBelow(folder, matches = () => true) {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { withFileTypes: true })
    .filter((entry) => entry.name !== "node_modules")
    .flatMap((entry) => {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) return filesBelow(path, matches);
      return entry.isFile() && matches(path) ? [path] : [];
    })
    .sort();
}

export function hashOf(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part).update("\0");
  return hash.digest("hex");
}

/**
 * Skips work that was already done with the same input: `stamp(name, key)` stores the input's hash, and
 * `fresh(name, key)` compares it.
 */
const stampPath = (name) => join(root, ".build", "stamps", name);

export function fresh(name, key) {
  return existsSync(stampPath(name)) && readFileSync(stampPath(name), "utf8") === key;
}

export function stamp(name, key) {
  mkdirSync(dirname(stampPath(name)), { recursive: true });
  writeFileSync(stampPath(name), key);
}

/** Writes a file only when its content changes, so that tools that compare dates do not rebuild. */
export function writeIfChanged(path, content) {
  const target = join(root, path);
  if (existsSync(target) && Buffer.from(content).equals(readFileSync(target))) return;
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, content);
}

/**
 * Parses the arguments of a script. `known` maps each flag to "flag", "text" or "count"; any other flag is an
 * error. Returns the flags' values and the positional words.
 */
export function parseArguments(args, known, usage) {
  const help = { type: "boolean", short: "h" };
  const options = { help };
  for (const [flag, kind] of Object.entries(known)) {
    options[flag.slice(2)] = { type: kind === "flag" ? "boolean" : "string" };
  }
  let parsed;
  try {
    parsed = parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    throw new Problem(`${error.message}\n\n${usage}`);
  }
  const { help: wantsHelp, ...found } = parsed.values;
  if (wantsHelp) {
    process.stdout.write(`${usage}\n`);
    process.exit(0);
  }
  const values = {};
  for (const [name, value] of Object.entries(found)) {
    const flag = `--${name}`;
    values[flag] = known[flag] === "count" ? toCount(flag, value, usage) : value;
  }
  return { values, words: parsed.positionals };
}

function toCount(flag, value, usage) {
  if (/^\d{1,15}$/.test(value)) return Number(value);
  throw new Problem(`${flag} needs a whole number, not ${JSON.stringify(value)}.\n\n${usage}`);
}

export function isOlder(path, than) {
  const [a, b] = [join(root, path), join(root, than)];
  return !existsSync(a) || statSync(a).mtimeMs < statSync(b).mtimeMs;
}
