/** The worker of a tab whose life is tested. */

import { serve } from "varve";

export default serve("shop", {
  procedures: {
    /** One more under a key, and how many there are. */
    add(db, key: string): number {
      const next = Number(db.getText(key) ?? "0") + 1;
      db.set(key, String(next));
      return next;
    },
    /** Adds one, and never ends. */
    hang(db, key: string): number {
      db.set(key, "hung");
      for (;;);
    },
  },
});
