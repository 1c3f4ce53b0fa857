// Builds the demo's page into a folder that any static host can serve, without special headers.

import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "./build.mjs";
import { entry, Problem, parseArguments, root, say } from "./lib.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm run demo [-- FOLDER]
  FOLDER   where the page goes: a new or empty folder, or an earlier page, which is replaced (dist-demo)`;

entry(async () => {
  const { words } = parseArguments(process.argv.slice(2), {}, USAGE);
  if (words.length > 1) throw new Problem(`one folder, not ${words.join(" ")}.\n\n${USAGE}`);
  const folder = resolve(root, words[0] ?? "dist-demo");
  const isOther = existsSync(folder) && readdirSync(folder).length > 0;
  if (isOther && !existsSync(join(folder, "records.json"))) {
    throw new Problem(`${folder} holds something else, which would be deleted. Name a new folder.`);
  }
  await setup();
  await build();
  const { buildPage } = await import("../demo/build.mjs");
  await buildPage(folder);
  say(`The page is in ${folder}.`);
});
