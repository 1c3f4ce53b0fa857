// Installs what the benchmarks need, makes the release build, and runs benches/run.mjs with all options.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { build } from "./build.mjs";
import { entry, root } from "./lib.mjs";
import { findProgram } from "./programs.mjs";
import { setup } from "./setup.mjs";

entry(async () => {
  await setup();
  await build();
  const chromium = await findProgram("chromium");
  const { status } = spawnSync(
    process.execPath,
    [join(root, "benches/run.mjs"), ...process.argv.slice(2)],
    { cwd: root, stdio: "inherit", env: { ...process.env, CHROME_BIN: chromium } },
  );
  process.exitCode = status ?? 1;
});
