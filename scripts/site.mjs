// Builds the documentation site, with the page of the race, into a folder for any static host.

import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "./build.mjs";
import { installPackages } from "./install.mjs";
import { entry, Problem, parseArguments, root, say } from "./lib.mjs";
import { serve } from "./serve.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm run site [-- FOLDER] [options]
  FOLDER        where the site goes: a new or empty folder, or an earlier site, which is replaced (dist-site)
  --base /PATH/ the path under which the host serves it (/)
  --serve       then serves it on this machine
  --port N      port of --serve (any free one)`;

const FLAGS = { "--base": "text", "--serve": "flag", "--port": "count" };

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), FLAGS, USAGE);
  if (words.length > 1) throw new Problem(`one folder, not ${words.join(" ")}.\n\n${USAGE}`);
  const base = values["--base"] ?? "/";
  if (!/^\/([\w.~-]+\/)*$/.test(base)) {
    throw new Problem(`--base begins and ends with "/", as in /varve/.\n\n${USAGE}`);
  }
  const isServed = values["--serve"] === true;
  if (isServed && base !== "/")
    throw new Problem("--serve serves the site under /, without --base.");
  const folder = resolve(root, words[0] ?? "dist-site");
  const isOther = existsSync(folder) && readdirSync(folder).length > 0;
  // VitePress writes this file into each site.
  if (isOther && !existsSync(join(folder, "hashmap.json"))) {
    throw new Problem(`${folder} holds something else, which would be deleted. Name a new folder.`);
  }
  await setup();
  await installPackages("site", { scripts: false });
  await build();
  const { buildSite } = await import("../site/build.mjs");
  await buildSite(folder, { base });
  say(`The site is in ${folder}.`);
  if (!isServed) return;
  const server = await serve([folder], { port: values["--port"] ?? 0 });
  process.stdout.write(`\nThe site is at ${server.url}/ (end with Ctrl+C)\n`);
});
