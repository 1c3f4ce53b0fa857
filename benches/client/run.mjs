// What a page pays for its database being in a worker: round trips beside those of a bare message.
//   node scripts/built.mjs benches/client/run.mjs [-- --in chromium|firefox]

import { rmSync } from "node:fs";
import { join } from "node:path";
import { bundleForBrowser } from "../../scripts/bundle.mjs";
import { entry, parseArguments, root, say } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/serve.mjs";
import { withPage } from "../../tests/browsers.mjs";

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve</title><link rel="icon" href="data:,">
<script type="module" src="/page.js"></script>`;

entry(async () => {
  const { values } = parseArguments(
    process.argv.slice(2),
    { "--in": "text" },
    "--in chromium|firefox",
  );
  const out = `.build/benches/client-${process.pid}`;
  const server = await serve([join(root, out)], { pages: { "/": PAGE } });
  try {
    await bundleForBrowser(["benches/client/page.ts", "benches/client/worker.ts"], out, {
      minify: true,
    });
    const measured = await withPage(values["--in"] ?? "chromium", async (page) => {
      await page.goto(server.url);
      await page.waitForFunction(() => "run" in globalThis);
      return page.evaluate("run()");
    });
    const echo = (name) => measured.find((one) => one.name === `echo, ${name.split(", ").at(-1)}`);
    for (const { name, median } of measured) {
      const times = (median / echo(name).median).toFixed(2);
      say(
        `${name.padEnd(40)} ${median.toFixed(1).padStart(8)} µs ${times.padStart(7)} times an echo`,
      );
    }
  } finally {
    await server.close();
    rmSync(join(root, out), { recursive: true, force: true });
  }
});
