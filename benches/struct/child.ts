import { createRequire } from "node:module";
import { join } from "node:path";
import type { Rivals } from "./views.js";
import { type Request, work } from "./work.js";

const request: Request & { root: string } = JSON.parse(process.argv[2] ?? "");
// The rivals are installed separately, so that building varve does not require building them.
const require = createRequire(join(request.root, "benches/rivals/package.json"));
const rivals = {
  msgpackr: require("msgpackr"),
  flatbuffers: require("flatbuffers"),
} as Rivals;
process.stdout.write(JSON.stringify(await work(request, rivals)));
