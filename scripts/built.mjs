// Installs what is missing, builds, and then runs a program of the repository:
//   node scripts/built.mjs tests/torture/kills.mjs [its options]

import { build } from "./build.mjs";
import { entry, execute } from "./lib.mjs";
import { setup } from "./setup.mjs";

entry(async () => {
  await setup();
  await build();
  const { code } = await execute(process.execPath, process.argv.slice(2));
  process.exitCode = code;
});
