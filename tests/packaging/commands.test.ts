import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs one of the repository's commands as a user does, to its end. */
function command(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const options = { cwd: context().root, env: plainEnvironment() };
    const child = execFile("npm", args, options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
    onTestFinished(() => {
      child.kill();
    });
  });
}

/** The environment without the variables that npm has set for the command that runs this test. */
function plainEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  return Object.fromEntries(entries);
}

function lastLine(text: string): string {
  return text.trimEnd().split("\n").at(-1) ?? "";
}

describe("npm start", () => {
  test("--once and --json sell all but one, as the last line says", async () => {
    const { code, stdout, stderr } = await command("start", "--", "--once", "--json");
    expect(code, stderr).toBe(0);
    const result = JSON.parse(lastLine(stdout));
    const { cycles, stock, name, storage, durability } = result;
    expect({ cycles, stock, name, storage, durability }).toStrictEqual({
      cycles: 20_000,
      stock: 1,
      name: "Yeezy Boost 350 V2",
      storage: "file",
      durability: "written",
    });
    assert(result.ms > 0, `${result.ms} ms`);
    assert(Math.abs(result.opsPerSecond / ((cycles / result.ms) * 1000) - 1) < 0.01, "a true rate");
    expect(result.reopened.stock).toBe(1);
  });

  test("--cycles sets the number of sales", async () => {
    const { stdout } = await command("start", "--", "--once", "--json", "--cycles", "65534");
    const { cycles, stock } = JSON.parse(lastLine(stdout));
    expect([cycles, stock]).toStrictEqual([65_534, 1]);
  });

  test("unknown options are refused with the list of the known ones", async () => {
    for (const [args, message] of [
      [["--twice"], "--twice"],
      [["--once=yes"], "--once"],
      [["--cycles"], "--cycles"],
      [["--cycles", "0"], "--cycles"],
      [["--cycles", "65535"], "--cycles"],
      [["--cycles", "many"], '"many"'],
      [["--port", "65536"], "--port"],
      [["once"], "once"],
    ] as const) {
      const { code, stdout, stderr } = await command("start", "--", ...args);
      expect(code, args.join(" ")).toBe(1);
      assert(stderr.includes(message) && stderr.includes("--json"), stderr);
      assert(!stdout.includes("sold"), "nothing was run");
    }
  });

  test("without --once it serves the page and everything that it loads", async () => {
    const child = spawn(process.execPath, ["scripts/start.mjs", "--port", "0"], {
      cwd: context().root,
      stdio: ["ignore", "pipe", "ignore"],
    });
    onTestFinished(() => {
      child.kill("SIGKILL");
    });
    const url = await addressOf(child);
    const page = await fetch(url);
    expect(page.status).toBe(200);
    const html = await page.text();
    const loaded = [...html.matchAll(/(?:src|href)="([^":]+)"/g)].map((match) => match[1] ?? "");
    assert(loaded.length >= 2, "a script and a style");
    for (const path of [...loaded, "worker.js", "sqlite3.wasm"]) {
      expect((await fetch(new URL(path, url))).status, path).toBe(200);
    }
    for (const path of ["/package.json", "/..%2fpackage.json", "/%2e%2e/package.json", "/%00"]) {
      assert((await fetch(new URL(path, url))).status >= 400, `${path} is not served`);
    }
    expect((await fetch(url, { method: "POST" })).status).toBe(405);
  });
});

describe("npm run site", () => {
  test("refuses a path that is none, and a folder that holds something else", async () => {
    for (const [args, message] of [
      [["--base", "varve"], "--base begins and ends"],
      [["--serve", "--base", "/varve/"], "without --base"],
      [["one", "two"], "one folder"],
      [["docs"], "holds something else"],
    ] as const) {
      const { code, stderr } = await command("run", "site", "--", ...args);
      expect(code, args.join(" ")).toBe(1);
      assert(stderr.includes(message), stderr);
    }
    assert(existsSync(join(context().root, "docs/api.md")), "nothing was deleted");
  });
});

function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = "";
    child.stdout?.on("data", (chunk) => {
      output += chunk;
      const found = /http:\/\/[\d.]+:\d+\//.exec(output);
      if (found !== null) resolve(found[0]);
    });
    child.on("exit", (code) => reject(new Error(`ended with ${code}: ${output}`)));
  });
}

function filesIn(folder: string): string[] {
  const all = readdirSync(join(context().root, folder), { recursive: true, withFileTypes: true });
  return all
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
}

describe("the repository", () => {
  const text = (path: string) => readFileSync(join(context().root, path), "utf8");

  test("the commands and documents that it names exist", () => {
    const { scripts } = JSON.parse(text("package.json"));
    for (const name of ["start", "test", "build", "bench", "check"]) {
      assert(existsSync(join(context().root, String(scripts[name]).split(" ")[1] ?? "")), name);
    }
    for (const path of ["LICENSE-MIT", "LICENSE-APACHE", "ARCHITECTURE.md", "crate/FORMAT.md"]) {
      assert(existsSync(join(context().root, path)), path);
    }
  });

  test("contains the targets of all links in its documents, and the files that ARCHITECTURE.md names", () => {
    const named = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "crate/DESIGN.md"];
    const pages = [
      ...named,
      ...readdirSync(join(context().root, "docs"), { recursive: true, encoding: "utf8" })
        .filter((name) => name.endsWith(".md"))
        .map((name) => `docs/${name.replaceAll("\\", "/")}`),
    ];
    const anchorsOf = (page: string) =>
      [...text(page).matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) =>
        title
          .toLowerCase()
          .replace(/[^\w -]/g, "")
          .replaceAll(" ", "-"),
      );
    let links = 0;
    for (const page of pages) {
      for (const [, target = "", anchor] of text(page).matchAll(
        /\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g,
      )) {
        const linked = target === "" ? page : posix.join(posix.dirname(page), target);
        assert(existsSync(join(context().root, linked)), `${page} links to ${linked}`);
        assert(
          anchor === undefined || anchorsOf(linked).includes(anchor),
          `${page}: ${linked}#${anchor}`,
        );
        links += 1;
      }
    }
    assert(links > 30, `${links} links`);
    const below = [...filesIn("js"), ...filesIn("crate/src")];
    for (const [, path = ""] of text("ARCHITECTURE.md").matchAll(/`([\w./-]+\.(?:ts|rs))`/g)) {
      assert(
        below.some((file) => file.endsWith(`/${path}`) || file === path),
        `ARCHITECTURE.md: ${path}`,
      );
    }
  });

  test("has the same version and licence in both of its packages", () => {
    const { version, license } = JSON.parse(text("package.json"));
    const crate = text("crate/Cargo.toml");
    assert(crate.includes(`version = "${version}"`), version);
    assert(crate.includes(`license = "${license}"`), license);
    assert(text("CHANGELOG.md").includes(`## ${version}`), "the changelog knows it");
  });
});

test("docs/errors.md lists every error code of the package, and no other", () => {
  const { root } = context();
  const files = readdirSync(join(root, "js"), { recursive: true, encoding: "utf8" });
  const source = files
    .filter((file) => file.endsWith(".ts"))
    .map((file) => readFileSync(join(root, "js", file), "utf8"))
    .join("\n");
  const codes = new Set(source.match(/(?<=")VARVE_[A-Z_]+(?=")/g));
  for (const [, name = ""] of source.matchAll(/ named\(\w+, "(\w+)Error"\)/g)) {
    codes.add(`VARVE${name.replace(/[A-Z]/g, "_$&").toUpperCase()}`);
  }
  // The base class has no code of its own.
  codes.delete("VARVE_VARVE");
  const listed = readFileSync(join(root, "docs/errors.md"), "utf8").match(/(?<=^\| `)\w+/gm);
  expect([...(listed ?? [])].sort()).toStrictEqual([...codes].sort());
});
