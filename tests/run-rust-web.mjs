// Runs the tests of crate/tests/web, which are in Rust, in Chromium and Firefox. wasm-bindgen's runner serves each test
// program as a page, and the browsers are started as for all other suites.
//   node tests/run-rust-web.mjs [--in chromium|firefox]

import { spawn } from "node:child_process";
import { entry, must, Problem, parseArguments, root, say } from "../scripts/lib.mjs";
import { installWasmTools, TESTS, wasmTool, wasmToolsEnv } from "../scripts/wasm-tools.mjs";
import { withPage } from "./browsers.mjs";

const USAGE = "node tests/run-rust-web.mjs [--in chromium|firefox]";
const BROWSERS = ["chromium", "firefox"];

/** The tests wait for clocks, but no longer than seconds. */
const TIMEOUT_MS = 5 * 60_000;

const RESULT = /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/m;

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--in": "text" }, USAGE);
  const browsers = values["--in"] === undefined ? BROWSERS : [values["--in"]];
  if (!browsers.every((name) => BROWSERS.includes(name))) throw new Problem(USAGE);
  await installWasmTools(["wasm-bindgen"]);
  const programs = await buildPrograms();
  const sum = { passed: 0, failed: 0, skipped: 0 };
  for (const { name, file } of programs) {
    const server = await serve(file);
    for (const browser of browsers) {
      add(sum, await withPage(browser, (page) => results(page, server.url, `${browser}, ${name}`)));
    }
    server.close();
  }
  process.stdout.write(`${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped\n`);
  if (sum.failed > 0 || sum.skipped > 0) process.exitCode = 1;
});

/** The test programs as cargo has built them: their names and their files. */
async function buildPrograms() {
  const wasm = ["--target", "wasm32-unknown-unknown"];
  const args = ["test", "--locked", ...wasm, "--no-run", "--message-format", "json"];
  // What it prints for people goes to stderr, which is shown.
  const output = await must("cargo", [...args, "--manifest-path", `${TESTS}/Cargo.toml`], {
    capture: true,
    echo: false,
    env: wasmToolsEnv(),
  });
  return output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line))
    .filter(({ executable }) => typeof executable === "string")
    .map(({ executable, target }) => ({ name: target.name, file: executable }));
}

/** How many tests have passed, failed, and were skipped on this page. */
async function results(page, url, title) {
  await page.goto(url);
  const hasEnded = `/^test result: /m.test(document.querySelector("#output")?.textContent)`;
  await page
    .waitForFunction(hasEnded, { timeout: TIMEOUT_MS })
    .catch((error) => say(`  [${title}] there is no result: ${error.message}`));
  const output = String(await page.evaluate(`document.querySelector("#output")?.textContent`));
  say(output.trim().replace(/^/gm, `  [${title}] `));
  const [, passed, failed, skipped] = RESULT.exec(output) ?? [];
  if (passed === undefined || Number(passed) + Number(failed) === 0) return [0, 1, 0];
  return [passed, failed, skipped].map(Number);
}

function add(sum, [passed, failed, skipped]) {
  sum.passed += passed;
  sum.failed += failed;
  sum.skipped += skipped;
}

/** Serves a test program as a page, at an address of its own. */
function serve(file) {
  const runner = spawn(wasmTool("wasm-bindgen-test-runner"), [file], {
    cwd: root,
    env: { ...process.env, NO_HEADLESS: "1", WASM_BINDGEN_TEST_ADDRESS: "127.0.0.1:0" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  return new Promise((resolve, reject) => {
    let output = "";
    const read = (chunk) => {
      output += chunk;
      const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(output) ?? [];
      if (url !== undefined) resolve({ url, close: () => runner.kill() });
    };
    runner.stdout.setEncoding("utf8").on("data", read);
    runner.stderr.setEncoding("utf8").on("data", read);
    runner.on("error", reject);
    runner.on("close", () => reject(new Problem(`${file} cannot be served:\n${output}`)));
  });
}
