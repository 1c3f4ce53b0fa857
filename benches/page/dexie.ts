/** A page with Dexie. */

import { Dexie } from "dexie";
import { LIST, type Note, offerStart } from "./start.js";

const db = new Dexie("bench");
db.version(1).stores({ notes: "id" });
const notes = db.table<Note>("notes");

offerStart({
  write: (note) => notes.put(note),
  list: () => notes.orderBy("id").limit(LIST).toArray(),
});
