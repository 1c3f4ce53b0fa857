/** A page with idb-keyval. */

import { set, values } from "idb-keyval";
import { type Note, offerStart } from "./start.js";

offerStart({ write: (note) => set(note.id, note), list: () => values<Note>() });
