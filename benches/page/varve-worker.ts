/** The worker of the page with varve. */

import { serve } from "varve/serve";
import { json } from "varve/struct";
import type { Note } from "./start.js";

export default serve("bench", { collections: { notes: json<Note>() } });
