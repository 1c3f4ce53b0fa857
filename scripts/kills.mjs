// Everything that is needed to be killed, the build, and then tests/torture/kills.mjs with all options.

import { build } from "./build.mjs";
import { entry, execute } from "./lib.mjs";
import { setup } from "./setup.mjs";

entry(async () => {
  await setup({ programs: ["chromium", "firefox"] });
  await build();
  const { code } = await execute(process.execPath, [
    "tests/torture/kills.mjs",
    ...process.argv.slice(2),
  ]);
  process.exitCode = code;
});
