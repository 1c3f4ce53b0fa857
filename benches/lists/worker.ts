/** The worker of the page with varve's client. */

import { serve } from "varve";
import { json } from "varve/struct";
import { Note, type Row } from "./rows.js";

export const COLLECTIONS = {
  json1000: json<Row>(),
  json10000: json<Row>(),
  struct1000: Note,
  struct10000: Note,
};

export default serve("lists", { collections: COLLECTIONS });
