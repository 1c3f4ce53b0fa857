/** `varve export` */

import { stat, writeFile } from "node:fs/promises";
import type { Call } from "./args.js";
import { escapeControls, size } from "./format.js";
import { inspectFile, refuseSpecialFile } from "./open-file.js";
import { EXIT, type ExitCode, type Output } from "./output.js";
import { into, refuseExisting } from "./output-file.js";

export async function exportFile(call: Call, output: Output): Promise<ExitCode> {
  const [path = "", target = ""] = call.positionals;
  refuseSpecialFile(path);
  refuseExisting(call, target);
  return inspectFile(path, { ordered: true }, async (db) => {
    const bytes = await into(target, async () => {
      await writeFile(target, db.export(), { flush: true });
      return (await stat(target)).size;
    });
    if (call.flags.has("json")) {
      await output.print(`${JSON.stringify({ file: path, newFile: target, bytes })}\n`);
    } else {
      await output.print(`exported ${size(bytes)} of live data to ${escapeControls(target)}\n`);
    }
    return EXIT.ok;
  });
}
