/** Every link of the built site leads to a page, a heading or a file that is there. */

import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { load } from "../demo/chromium.js";
import { context } from "../support/context.js";
import { BASE, buildFirst, filesBelow, site } from "./built.js";

const root = (path: string) => join(context().root, path);

interface Pages {
  readonly DOCUMENTS: readonly string[];
  readonly REPOSITORY: string;
  addressOf(document: string): string;
}

const pages = () => load<Pages>("site/pages.mjs");

/** The texts of an attribute in HTML that a program has written. */
function attributes(html: string, name: string): string[] {
  const found = html.matchAll(new RegExp(`\\s${name}="([^"]*)"`, "g"));
  return [...found].map(([, text = ""]) => text.replaceAll("&amp;", "&").replaceAll("&quot;", '"'));
}

/** A link that leads nowhere, in words; `undefined` if it does not. */
function faultOf(link: string, page: string, folder: string, anchors: Map<string, Set<string>>) {
  const { pathname, hash } = new URL(link, `http://site/${page}`);
  const path = decodeURIComponent(pathname);
  if (!path.startsWith(BASE)) return `${page}: ${link} leads out of ${BASE}`;
  const target = `${path.slice(1)}${path.endsWith("/") ? "index.html" : ""}`;
  if (!existsSync(join(folder, target)) || statSync(join(folder, target)).isDirectory()) {
    return `${page}: ${link} is missing`;
  }
  const anchor = decodeURIComponent(hash.slice(1));
  if (anchor === "" || !target.endsWith(".html")) return undefined;
  return anchors.get(target)?.has(anchor) ? undefined : `${page}: ${link} has no such heading`;
}

describe("the site", () => {
  buildFirst();

  test("every link leads to a page, a heading or a file that is there", async () => {
    const folder = await site();
    const files = filesBelow(folder, ".html");
    const texts = new Map(files.map((file) => [file, readFileSync(join(folder, file), "utf8")]));
    const anchors = new Map(
      [...texts].map(([file, html]) => [file, new Set(attributes(html, "id"))] as const),
    );
    const { REPOSITORY } = await pages();
    const inRepository = `${REPOSITORY}/blob/main/`;
    const faults = new Set<string>();
    let links = 0;
    for (const [page, html] of texts) {
      for (const link of [...attributes(html, "href"), ...attributes(html, "src")]) {
        if (link.startsWith(inRepository)) {
          const path = link.slice(inRepository.length).split("#")[0] ?? "";
          if (!existsSync(root(path))) faults.add(`${page}: the repository has no ${path}`);
        } else if (!/^[a-z]+:/.test(link)) {
          const fault = faultOf(link, page, folder, anchors);
          if (fault !== undefined) faults.add(fault);
        }
        links += 1;
      }
    }
    expect([...faults]).toStrictEqual([]);
    assert(links > 10_000, `${links} links`);
  });

  test("every document of docs/ is a page, and every entry point has its reference", async () => {
    const folder = join(await site(), BASE);
    const { DOCUMENTS, addressOf } = await pages();
    const documents = filesBelow(root("docs"), ".md").map((name) => `docs/${name}`);
    expect(documents.filter((path) => !DOCUMENTS.includes(path))).toStrictEqual([]);
    for (const document of DOCUMENTS) {
      assert(existsSync(join(folder, addressOf(document).replace(/\.md$/, ".html"))), document);
    }
    const { exports } = JSON.parse(readFileSync(root("package.json"), "utf8")) as {
      exports: Record<string, { types?: string }>;
    };
    for (const [path, { types = "" }] of Object.entries(exports)) {
      const page = join(folder, "reference/varve", path.slice(1), "index.html");
      assert(existsSync(page) === types.endsWith(".d.ts"), page);
    }
  });

  test("has the page of the race", async () => {
    const html = readFileSync(join(await site(), BASE, "race/index.html"), "utf8");
    assert(html.includes("Race the stores in your browser"), html);
  });
});
