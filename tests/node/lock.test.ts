import { linkSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { destroy, file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects } from "../support/errors.js";
import { lockOf, NAME, openAndClose } from "./support/locks.js";
import { folder, Holder } from "./support/processes.js";

describe("the lock file of a database", () => {
  test("a second process is refused, with the number of the first", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const error = await rejects(file(directory).open(NAME), {
      name: "DatabaseBusyError",
      code: "VARVE_DATABASE_BUSY",
      message: `process ${first.pid}`,
    });
    expect((error as Error & { pid?: number }).pid).toBe(first.pid);
    assert(error.message.includes(join(directory, "shop.varve")), "the message names the file");
  });

  test("a second open in this process is refused, and the error names this process", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: /this process/,
    });
  });

  test("a refused open leaves the holder's lock and file alone", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const before = readFileSync(lockOf(directory), "utf8");
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
    expect(readFileSync(lockOf(directory), "utf8")).toBe(before);
    expect(readdirSync(directory).sort()).toStrictEqual(["shop.varve", "shop.varve.lock"]);
  });

  test("another name in the same folder has another lock", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const { file: opened } = await file(directory).open("shop2");
    opened.close();
  });

  test("closing releases the lock", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    await first.run("close");
    await openAndClose(directory);
  });

  test("a lock that another process has taken over is not released", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    writeFileSync(lockOf(directory), "of another process");
    opened.close();
    expect(readFileSync(lockOf(directory), "utf8")).toBe("of another process");
  });

  test("two paths to the same folder are one database", async () => {
    const directory = folder();
    const link = join(folder(), "link");
    symlinkSync(directory, link);
    expect(file(link).identity(NAME)).toBe(file(directory).identity(NAME));
    expect(file(join(link, "not", "there")).identity(NAME)).toBe(
      join(directory, "not/there/shop.varve"),
    );
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    await rejects(file(link).open(NAME), { code: "VARVE_DATABASE_BUSY" });
  });

  test("errors of creating the lock are reported, and errors of its cleanup are not", async () => {
    let directory = folder();
    // A path has at most 4,095 bytes, so the path of the draft is too long.
    for (let left = 4_075; left > directory.length + 1; ) {
      directory = join(directory, "d".repeat(Math.min(200, left - directory.length - 1)));
    }
    const error = await rejects(file(directory).open(NAME), { code: "VARVE_STORAGE_UNAVAILABLE" });
    assert(/ENAMETOOLONG.* open/.test(error.message), error.message);
  });

  test("two paths to the same file are one database", async () => {
    const [directory, elsewhere] = [folder(), folder()];
    const linked = file(elsewhere);
    (await file(directory).open(NAME)).file.close();
    symlinkSync(join(directory, "shop.varve"), join(elsewhere, "shop.varve"));
    expect(linked.identity(NAME)).toBe(file(directory).identity(NAME));
    const holder = await Holder.start();
    const busy = { code: "VARVE_DATABASE_BUSY" };
    await holder.run("open", { directory, name: NAME });
    for (const readOnly of [false, true]) await rejects(linked.open(NAME, { readOnly }), busy);
    await rejects(async () => linked.destroy?.(NAME), busy);
    await holder.run("close");
    const { file: opened } = await linked.open(NAME);
    expect(readdirSync(directory).sort()).toStrictEqual(["shop.varve", "shop.varve.lock"]);
    await rejects(holder.run("open", { directory, name: NAME }), busy);
    opened.close();
    expect(readdirSync(elsewhere)).toStrictEqual(["shop.varve"]);
    expect(await linked.destroy?.(NAME)).toBe(true);
    expect([...readdirSync(directory), ...readdirSync(elsewhere)]).toStrictEqual([]);
  });
});

describe("a file with two names (hard links)", () => {
  const refused = { code: "VARVE_STORAGE_UNAVAILABLE", message: /2 names \(hard links\).*Remove/ };

  test("it is refused under both names and left alone, and readOnly opens it", async () => {
    const directory = folder();
    const storage = file(directory);
    const db = await open(NAME, { storage });
    db.set("a", "1");
    await db.close();
    linkSync(join(directory, "shop.varve"), join(directory, "other.varve"));
    for (const name of [NAME, "other"]) {
      await rejects(open(name, { storage }), refused);
      const reader = await open(name, { storage, readOnly: true });
      expect(reader.getText("a")).toBe("1");
      await reader.close();
    }
    expect(readdirSync(directory).sort()).toStrictEqual(["other.varve", "shop.varve"]);
    expect(await destroy("other", { storage })).toBe(true);
    const again = await open(NAME, { storage });
    expect(again.getText("a")).toBe("1");
    await again.close();
  });

  test("a name added while it is open is refused, and the first one stays usable", async () => {
    const directory = folder();
    const storage = file(directory);
    const db = await open(NAME, { storage });
    db.set("a", "1");
    db.flush();
    linkSync(join(directory, "shop.varve"), join(directory, "other.varve"));
    await rejects(open("other", { storage }), refused);
    db.set("b", "2");
    db.flush();
    await db.close();
    rmSync(join(directory, "other.varve"));
    const again = await open(NAME, { storage });
    expect([...again.keys()].length).toBe(2);
    await again.close();
  });
});
