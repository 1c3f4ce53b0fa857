/** The worker of varve's client, for the round trips of the page. Its address says the durability. */

import { type Durability, opfs } from "varve";
import { serve } from "varve/serve";

const LEVELS: readonly Durability[] = ["buffered", "written", "flushed"];
const wanted = new URL(self.location.href).searchParams.get("durability");
const durability = LEVELS.find((level) => level === wanted) ?? "written";

export default serve(`race-page-${durability}`, {
  storage: opfs(`varve-race-${durability}`),
  durability,
  memory: 16 * 1_048_576,
});
