import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Locator, Page } from "playwright-core";
import { type Database, file, open } from "varve";
import { str, struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { load, startChromium, TIMEOUT_MS } from "./chromium.js";

/** The inspector on the page of demo/, in a real Chromium. */

type Bytes = Uint8Array<ArrayBuffer>;

const Product = struct("Product", { stock: u16, sold: u32, name: str });

interface Visit {
  page: Page;
  inspector: Locator;
  errors: string[];
}

async function visit(): Promise<Visit> {
  const { buildPage } = await load<{ buildPage(outdir: string): Promise<void> }>("demo/build.mjs");
  const { serve } = await load<{
    serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
  }>("scripts/serve.mjs");
  const out = mkdtempSync(join(context().directory ?? ".", "page-"));
  await buildPage(out);
  const server = await serve([out]);
  onTestFinished(() => server.close());
  const browser = await startChromium();
  browser.setDefaultTimeout(TIMEOUT_MS);
  const page = browser.pages()[0] ?? (await browser.newPage());
  const errors: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(server.url) || request.url().startsWith("blob:");
    if (!isOwn) errors.push(`a request to ${request.url()}`);
  });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.goto(`${server.url}/`, { waitUntil: "networkidle" });
  await page.getByRole("link", { name: "Look inside" }).click();
  const inspector = page.locator("#inspector");
  await inspector.getByRole("heading", { name: "example.varve" }).waitFor();
  return { page, inspector, errors };
}

/** A shop: products that were changed, deleted and indexed, a text, and a note. */
async function shop(): Promise<Bytes> {
  const folder = mkdtempSync(join(context().directory ?? ".", "shop-"));
  const db = await open("shop", { storage: file(folder) });
  await fill(db);
  await db.close();
  return new Uint8Array(readFileSync(join(folder, "shop.varve")));
}

async function fill(db: Database): Promise<void> {
  const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
  for (let i = 0; i < 200; i++) products.set(`p${i}`, { stock: i, sold: 0, name: `Product ${i}` });
  await db.committed;
  for (let i = 0; i < 200; i += 2) {
    products.updateIf(`p${i}`, (product) => {
      product.sold += 1;
    });
  }
  await db.committed;
  db.transaction(() => products.delete("p7"), { note: "p7 is gone" });
  db.set("motto", "short words");
  await db.committed;
  products.set("yeezy", { stock: 300, sold: 41, name: "Yeezy Boost" });
}

async function drop(page: Page, bytes: Bytes, name: string): Promise<void> {
  const base64 = Buffer.from(bytes).toString("base64");
  const transfer = await page.evaluateHandle(
    ({ base64, name }) => {
      const dropped = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([dropped], name));
      return transfer;
    },
    { base64, name },
  );
  await page.dispatchEvent("#inspector > div", "drop", { dataTransfer: transfer });
}

async function shown(inspector: Locator, name: string): Promise<void> {
  await inspector
    .locator("[aria-busy=false]")
    .getByRole("heading", { name, exact: true })
    .waitFor();
}

/** The bytes of a category, as the legend has them. */
async function legend(inspector: Locator, category: string): Promise<number> {
  const item = inspector.locator(`[data-category=${category}]`);
  if ((await item.count()) === 0) return 0;
  return Number(await item.getAttribute("data-bytes"));
}

/** The fields of the record that is shown, by their names. */
async function fields(inspector: Locator): Promise<Record<string, string>> {
  const rows = await inspector
    .getByRole("table", { name: "Parts of the record" })
    .locator("tbody tr")
    .evaluateAll((rows) =>
      rows.map((row) => [
        (row as HTMLTableRowElement).cells[0]?.textContent ?? "",
        (row as HTMLTableRowElement).cells[3]?.textContent ?? "",
      ]),
    );
  return Object.fromEntries(rows);
}

async function saved(page: Page, inspector: Locator): Promise<Bytes> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    inspector.getByRole("button", { name: "Save a copy" }).click(),
  ]);
  return new Uint8Array(readFileSync(await download.path()));
}

describe("the inspector", () => {
  test("shows a dropped file: its live bytes, history, frames, records, and fields over their bytes", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector, errors } = await visit();
    const bytes = await shop();
    await drop(page, bytes, "shop.varve");
    await shown(inspector, "shop.varve");
    const db = await open("shop", { from: bytes, readOnly: true });
    const { liveBytes } = db.stats();
    await db.close();
    expect(await legend(inspector, "live")).toBe(liveBytes);
    const sizes = await Promise.all(
      ["live", "dead", "structure", "damaged", "torn", "free"].map((one) => legend(inspector, one)),
    );
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(bytes.length);
    assert((sizes[1] ?? 0) > 0);

    const { stock, sold, name, key } = await fields(inspector);
    expect({ stock, sold, name, key }).toStrictEqual({
      stock: "300",
      sold: "41",
      name: "Yeezy Boost",
      key: "yeezy",
    });
    const hex = await inspector
      .locator("[data-part=record] div.hex i")
      .evaluateAll((cells) => cells.map((cell) => cell.textContent).join(""));
    assert(hex.includes(Buffer.from("Yeezy Boost").toString("hex")));

    await inspector.getByText("The log as history").click();
    const facts = inspector.locator("[data-part=history] [data-live]");
    await facts.waitFor();
    expect(Number(await facts.getAttribute("data-live"))).toBe(liveBytes);
    const noted = inspector.getByRole("row").filter({ hasText: "p7 is gone" });
    assert((await noted.textContent())?.includes("delete products/p7"));
    await noted.getByRole("button").click();
    await inspector
      .getByRole("table", { name: /^Records of/ })
      .getByText("a deletion")
      .first()
      .waitFor();
    expect(errors).toStrictEqual([]);
  });

  test("changes exactly those bytes of a field that it shows, in a copy that the package opens", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector, errors } = await visit();
    const before = await shop();
    await drop(page, before, "shop.varve");
    await shown(inspector, "shop.varve");
    await inspector.getByRole("button", { name: "sold", exact: true }).click();
    await inspector.getByLabel("sold, u32").fill("65535");
    await inspector.getByRole("button", { name: "Change it" }).click();
    const changes = inspector.locator(".changes:not([hidden])");
    await changes.waitFor();
    expect((await fields(inspector)).sold).toBe("65535");

    // 41 was 29 00 00 00 at 4 and is ff ff 00 00: two bytes.
    const value = await changes.locator("[data-value-changed]").getAttribute("data-value-changed");
    expect(JSON.parse(value ?? "")).toStrictEqual([{ at: 4, length: 2 }]);
    const marked = await inspector
      .locator("[data-part=record] div.hex i[data-changed]")
      .evaluateAll((cells) => cells.map((cell) => cell.textContent));
    expect(marked).toStrictEqual(["ff", "ff"]);

    const after = await saved(page, inspector);
    const differing = Array.from(after.keys()).filter((at) => after[at] !== (before[at] ?? 0));
    const groups = await changes.locator("[data-at]").evaluateAll((items) =>
      items.map((item) => ({
        at: Number(item.getAttribute("data-at")),
        length: Number(item.getAttribute("data-length")),
        bytes: Number(item.getAttribute("data-bytes")),
      })),
    );
    for (const { at, length, bytes } of groups) {
      const inside = differing.filter((byte) => byte >= at && byte < at + length);
      expect({ at, bytes }).toStrictEqual({ at, bytes: inside.length });
    }
    expect(groups.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(differing.length);

    const db = await open("shop", { from: after, readOnly: true });
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    expect(products.get("yeezy")?.snapshot()).toStrictEqual({
      stock: 300,
      sold: 65_535,
      name: "Yeezy Boost",
    });
    expect(products.get("p8")?.snapshot()).toStrictEqual({ stock: 8, sold: 1, name: "Product 8" });
    expect(products.index.byStock.count({ gte: 300 })).toBe(1);
    await db.close();
    expect(errors).toStrictEqual([]);
  });

  test("says why a value is refused, and changes nothing", { timeout: TIMEOUT_MS }, async () => {
    const { page, inspector } = await visit();
    await drop(page, await shop(), "shop.varve");
    await shown(inspector, "shop.varve");
    await inspector.getByRole("button", { name: "stock", exact: true }).click();
    await inspector.getByLabel("stock, u16").fill("70000");
    await inspector.getByRole("button", { name: "Change it" }).click();
    const alert = inspector.getByRole("alert");
    await alert.waitFor();
    assert((await alert.textContent())?.includes("65535"));
    expect((await fields(inspector)).stock).toBe("300");
  });

  test("shows a flipped bit as damage in its frame and record, and all else as it is", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector } = await visit();
    const bytes = await shop();
    const at = Buffer.from(bytes).indexOf("Product 5");
    bytes[at + 2]! ^= 4;
    await drop(page, bytes, "flipped.varve");
    await shown(inspector, "flipped.varve");
    const alert = inspector.getByRole("alert");
    await alert.waitFor();
    assert((await alert.textContent())?.includes("damaged"));
    assert((await legend(inspector, "damaged")) > 0);
    const records = inspector.getByRole("table", { name: /^Records of/ });
    const damaged = records.locator("tr:has([data-state=damaged])");
    expect(await damaged.locator("th").allTextContents()).toStrictEqual(["p5"]);
    await damaged.getByRole("button").click();
    expect((await fields(inspector)).name).toBe("Prkduct 5");
    await inspector.getByText("Segments and frames as tables").click();
    const frames = inspector.getByRole("table", { name: /^Frames of segment/ });
    await frames.waitFor();
    const states = await frames.locator("tbody tr td:nth-of-type(1)").allTextContents();
    expect(states.filter((state) => state === "damaged").length).toBe(1);
    assert(states.includes("intact"));
  });

  test("says of a file that is no database what it is, and shows the next one", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector, errors } = await visit();
    await drop(page, new Uint8Array(9_000).fill(65), "letters.txt");
    const alert = inspector.getByRole("alert");
    await alert.filter({ hasText: "letters.txt is no varve database" }).waitFor();
    await drop(page, new Uint8Array(0), "empty.varve");
    await alert.filter({ hasText: "empty.varve is empty" }).waitFor();
    const cut = (await shop()).subarray(0, 20_000);
    await drop(page, cut.slice(), "cut.varve");
    await alert.filter({ hasText: /missing|damaged/ }).waitFor();
    await shown(inspector, "cut.varve");
    await drop(page, await shop(), "shop.varve");
    await shown(inspector, "shop.varve");
    expect(await alert.count()).toBe(0);
    expect(errors).toStrictEqual([]);
  });

  test("compacts the copy in steps: what is live stays, what is dead goes", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { inspector, errors } = await visit();
    const [live, dead] = [await legend(inspector, "live"), await legend(inspector, "dead")];
    await inspector.getByRole("button", { name: "Compact it" }).click();
    const slider = inspector.getByRole("slider", { name: "Steps of the compaction" });
    await slider.waitFor();
    await inspector.getByText(/^After: the file has/).waitFor();
    assert((await legend(inspector, "dead")) < dead / 10);
    // The record about the freed segments is new.
    assert(Math.abs((await legend(inspector, "live")) - live) < 1_000);
    await slider.focus();
    await slider.press("Home");
    await inspector.getByText(/^Before: the file has/).waitFor();
    expect(await legend(inspector, "dead")).toBe(dead);
    expect(errors).toStrictEqual([]);
  });

  test("shows a database of the origin, and lists those that there are", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector, errors } = await visit();
    const base64 = Buffer.from(await shop()).toString("base64");
    await page.evaluate(async (base64) => {
      const folder = await navigator.storage.getDirectory();
      const file = await (
        await folder.getFileHandle("shop.varve", { create: true })
      ).createWritable();
      await file.write(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
      await file.close();
    }, base64);
    await page.reload({ waitUntil: "networkidle" });
    await page.getByRole("link", { name: "Look inside" }).click();
    await shown(inspector, "example.varve");
    await inspector.getByRole("combobox", { name: "Databases of this site" }).selectOption("shop");
    await shown(inspector, "shop");
    expect((await fields(inspector)).name).toBe("Yeezy Boost");
    expect(errors).toStrictEqual([]);
  });

  test("is used by keyboard, and axe finds no serious fault in it", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, inspector } = await visit();
    const segments = inspector.getByRole("slider", { name: "Segments of the file" });
    const frames = inspector.getByRole("slider", { name: "Frames of the segment" });
    await segments.focus();
    await segments.press("Home");
    assert((await segments.getAttribute("aria-valuetext"))?.startsWith("Segment 0: log"));
    await segments.press("Enter");
    await inspector.getByRole("heading", { name: "Frames of segment 0" }).waitFor();
    const focused = () =>
      page.evaluate(() => {
        const inner = document.querySelector("#inspector > div")?.shadowRoot?.activeElement;
        return inner?.getAttribute("aria-label") ?? inner?.textContent;
      });
    expect(await focused()).toBe("Frames of the segment");
    await frames.press("Home");
    assert((await frames.getAttribute("aria-valuetext"))?.startsWith("Frame 1:"));
    await frames.press("ArrowRight");
    assert((await frames.getAttribute("aria-valuetext"))?.startsWith("Frame 2:"));
    await frames.press("Enter");
    assert((await focused())?.startsWith("product-"));
    await page.keyboard.press("Enter");
    await inspector.getByRole("table", { name: "Parts of the record" }).waitFor();
    await page.keyboard.press("Escape");
    expect(await focused()).toBe("Frames of the segment");
    await page.keyboard.press("Escape");
    expect(await focused()).toBe("Segments of the file");

    await inspector.getByText("The log as history").click();
    await inspector.locator("[data-part=history] [data-live]").waitFor();
    await inspector.getByText("Segments and frames as tables").click();
    await page.addScriptTag({ path: join(context().root, "node_modules/axe-core/axe.min.js") });
    const faults = await page.evaluate(async () => {
      interface Axe {
        run(on: string): Promise<{
          violations: { id: string; impact: string; nodes: { html: string }[] }[];
        }>;
      }
      const { violations } = await (window as unknown as { axe: Axe }).axe.run("#inside");
      return violations
        .filter(({ impact }) => ["serious", "critical"].includes(impact))
        .map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
    });
    expect(faults).toStrictEqual([]);
  });
});
