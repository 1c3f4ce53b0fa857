// The programs in which varve is tested besides this Node: found, or installed. An environment variable can
// name each instead.

import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { aptInstall, installPackages } from "./install.mjs";
import { ask, Problem, root, say } from "./lib.mjs";

/** The package of the runtimes and the browser driver, which only the tests need. */
const PACKAGE = "tests/runtimes";

/**
 * `onPath` and `paths` are where an installed browser may be; `apt` is its package. `npm` matches the npm
 * packages of a runtime, one for each platform, and `file` is the program's path in them.
 */
const PROGRAMS = {
  node24: {
    title: "Node 24",
    variable: "NODE24_BIN",
    npm: /^node-(bin-)?(darwin|linux|win)-\w+$/,
    file: "bin/node",
  },
  deno: { title: "Deno", variable: "DENO_BIN", npm: /^@deno\//, file: "deno" },
  bun: { title: "Bun", variable: "BUN_BIN", npm: /^@oven\/bun-/, file: "bin/bun" },
  workerd: {
    title: "workerd",
    variable: "WORKERD_BIN",
    npm: /^@cloudflare\/workerd-/,
    file: "bin/workerd",
  },
  chromium: {
    title: "Chromium",
    variable: "CHROME_BIN",
    onPath: ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"],
    paths: [
      "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
      "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ],
    apt: "chromium",
  },
  firefox: {
    title: "Firefox",
    variable: "FIREFOX_BIN",
    onPath: ["firefox-esr", "firefox"],
    paths: ["/Applications/Firefox.app/Contents/MacOS/firefox"],
    apt: "firefox-esr",
  },
};

export const PROGRAM_NAMES = ["node", ...Object.keys(PROGRAMS)];

/** The path of the program with that name; `node` is the one that runs this script. */
export async function findProgram(name) {
  if (name === "node") return process.execPath;
  const { title, variable, apt } = PROGRAMS[name];
  const wanted = process.env[variable];
  if (wanted) {
    if (existsSync(wanted)) return wanted;
    throw new Problem(`${variable} names ${wanted}, which does not exist.`);
  }
  if (apt === undefined) await installPackages(PACKAGE, { scripts: false });
  const found = installed(PROGRAMS[name]);
  if (found !== undefined) return found;
  if (apt === undefined) {
    throw new Problem(
      `npm has no ${title} for this ${process.platform}-${process.arch}. Name one in ${variable}.`,
    );
  }
  say(`· ${title} is missing`);
  await aptInstall([apt], `${title} (or name one in the environment variable ${variable})`);
  const fetched = installed(PROGRAMS[name]);
  if (fetched !== undefined) return fetched;
  throw new Problem(`${title} was installed, but cannot be found. Name it in ${variable}.`);
}

/**
 * Without these compilers, which run in another thread and may wait for a garbage collection that an exiting
 * program never makes: with Node 24, one exit of a few hundred hangs on a loaded machine, whatever the
 * program (github.com/nodejs/node/issues/54918).
 */
export const WITHOUT_WAITING = ["--no-concurrent-sparkplug", "--no-maglev"];

/**
 * The command of a runtime, before a program and its arguments. Programs pass Node's flags to their child
 * processes.
 */
export async function runtimeCommand(name) {
  const program = await findProgram(name);
  if (name === "deno") return [program, "run", "--no-prompt", "--no-lock"];
  return name === "bun" ? [program] : [program, ...WITHOUT_WAITING];
}

/** puppeteer-core, which drives both browsers. */
export async function browserDriver() {
  await installPackages(PACKAGE, { scripts: false });
  return join(root, PACKAGE, "node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js");
}

function installed({ npm, file, onPath = [], paths = [] }) {
  if (npm === undefined) {
    const folders = (process.env.PATH ?? "").split(delimiter);
    const candidates = folders.flatMap((folder) => onPath.map((name) => join(folder, name)));
    return [...candidates, ...paths].find((path) => existsSync(path));
  }
  const modules = join(root, PACKAGE, "node_modules");
  const ending = process.platform === "win32" ? ".exe" : "";
  const candidates = packagesIn(modules).filter((name) => npm.test(name));
  // Where npm does not know which C library a system has, it installs one package for each: use the one that
  // runs.
  return candidates
    .map((name) => join(modules, name, file + ending))
    .find((path) => ask(path, ["--version"]) !== undefined);
}

function packagesIn(modules) {
  return readdirSync(modules).flatMap((name) =>
    name.startsWith("@") ? readdirSync(join(modules, name)).map((one) => `${name}/${one}`) : [name],
  );
}
