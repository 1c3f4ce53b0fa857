import { open, opfs } from "varve";
import { handleRequests } from "../browser/handle-requests.js";
import { removeAll } from "../browser/platform.js";
import { check, flat, nested, planOf, write } from "./shape.js";

/** The milliseconds of each walk. */
export interface BrowserWalks {
  nested: number[];
  flat: number[];
}

handleRequests<{ quick: boolean; rounds: number }, BrowserWalks>(async ({ quick, rounds }) => {
  await removeAll();
  const storage = opfs("bench-history");
  const plan = planOf(quick);
  const writer = await open("history", { storage });
  write(writer, plan);
  await writer.close();
  const db = await open("history", { storage });
  const walks: BrowserWalks = { nested: [], flat: [] };
  for (let i = -1; i < rounds; i += 1) {
    for (const [name, walk] of [["nested", nested] as const, ["flat", flat] as const]) {
      const started = performance.now();
      const found = walk(db);
      if (i >= 0) walks[name].push(performance.now() - started);
      check(`Chromium, ${name}`, plan, found);
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }
  await db.close();
  await removeAll();
  return walks;
});
