import { equal, test, text, throws, turn } from "../harness.js";
import { everywhere, opened } from "./places.js";

const WRITTEN = { code: "VARVE_VIEW_WRITTEN", message: /updateIf/ } as const;

everywhere("strict views", ({ storage }) => {
  test("7: every view is dead after every yield", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    const first = db.get("key");
    equal(text(first), "value");
    await null;
    equal(first?.length, 0);
    const second = db.get("key");
    await turn();
    equal(second?.length, 0);
    equal(db.getText("key"), "value");
  });

  test("7: also when writes are buffered, and then too they reach the file", async () => {
    const db = await opened(storage, { strictViews: true, durability: "buffered" });
    db.set("key", "value");
    const view = db.get("key");
    await null;
    equal(view?.length, 0);
    await db.committed;
    equal(db.stats().pendingBytes, 0);
  });

  test("7: the view of an update dies at the next yield like any other", async () => {
    for (const durability of ["written", "buffered"] as const) {
      const db = await opened(storage, { strictViews: true, durability });
      db.set("key", "value");
      await null;
      const kept: Uint8Array[] = [];
      db.updateIf("key", (view) => {
        kept.push(view);
      });
      db.updateIf("key", () => {}, { predicate: (view) => kept.push(view) < 0 });
      await null;
      equal(kept[0]?.length, 0);
      equal(kept[1]?.length, 0);
    }
  });

  test("7: a write through a view of get is reported, thrown once, and put back", async () => {
    const heard: Error[] = [];
    const db = await opened(storage, { strictViews: true, onError: (error) => heard.push(error) });
    for (const committed of [false, true]) {
      db.set("key", "value");
      if (committed) await db.committed;
      (db.get("key") as Uint8Array)[0] = 88;
      await turn();
      equal(heard.length, 1);
      equal(
        heard.pop(),
        throws(() => db.get("key"), WRITTEN),
      );
      equal(db.getText("key"), "value");
    }
  });

  test("7: a write through a view of get is found by an update of the same record", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    (db.get("key") as Uint8Array)[0] = 88;
    throws(() => db.updateIf("key", (view) => view.fill(65)), WRITTEN);
    equal(db.getText("key"), "value");
  });

  test("7: a write through a view of get is found by a commit", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    (db.get("key") as Uint8Array)[0] = 88;
    throws(() => db.commit(), WRITTEN);
    db.commit();
    equal(db.getText("key"), "value");
  });

  test("7: lawful changes are not mistaken for writes through a view", async () => {
    const heard: Error[] = [];
    const db = await opened(storage, { strictViews: true, onError: (error) => heard.push(error) });
    db.set("key", "value");
    for (let i = 0; i < 5; i++) {
      db.get("key");
      db.updateIf("key", (view) => {
        view[0] = 65 + i;
      });
      db.get("key");
    }
    throws(() =>
      db.transaction(() => {
        db.get("key");
        db.updateIf("key", (view) => {
          view.fill(90);
        });
        db.get("key");
        throw new Error("undone");
      }),
    );
    db.get("key");
    db.updateIf("key", () => "longer than it was");
    db.get("key");
    db.set("key", "replaced");
    db.delete("key");
    await turn();
    equal(db.has("key"), false);
    equal(heard.length, 0);
  });

  test("7: a write through an update's view, after its callback returned, is reported", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    let kept: Uint8Array | undefined;
    db.updateIf("key", (view) => {
      kept = view;
    });
    (kept as Uint8Array)[0] = 88;
    await turn();
    throws(() => db.get("key"), WRITTEN);
    equal(db.getText("key"), "value");
  });
});
