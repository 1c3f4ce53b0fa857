import { existsSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { slug } from "github-slugger";
import { defineConfig } from "vitepress";
import { addressOf, DOCUMENT_AT, DOCUMENTS, PARTS, REPOSITORY } from "../pages.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const SOURCES = join(root, ".build/site");

/** The page of the race, which is put beside the pages. */
const RACE = "/race/";

const linkTo = (document) => `/${addressOf(document).replace(/(index)?\.md$/, "")}`;

const guides = PARTS.map(({ text, pages }) => ({
  text,
  items: Object.entries(pages).map(([document, title]) => ({
    text: title,
    link: linkTo(document),
  })),
}));

/** Matches the addresses of the guides. */
const GUIDE = `/(${Object.keys(PARTS[1].pages)
  .map((document) => addressOf(document).replace(/\.md$/, ""))
  .join("|")})(\\.html)?$`;

/** Sidebars of the reference by address: all entry points, and what is in the one that is shown. */
function referenceSidebars() {
  const path = join(SOURCES, "reference/typedoc-sidebar.json");
  // TypeDoc writes it before VitePress builds.
  const modules = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : [];
  const entries = { text: "Reference", items: modules.map(({ text, link }) => ({ text, link })) };
  const sidebars = modules.map(({ text, link, items = [] }) => [
    link.replace(/index\.md$/, ""),
    [{ text, items: items.map((item) => ({ ...item, collapsed: false })) }, entries],
  ]);
  return Object.fromEntries([["/reference/", [entries]], ...sidebars]);
}

/**
 * Links of documents lead to each other by their paths in the repository: here to their pages, or to the repository
 * for files that are no pages.
 */
function linksOfTheSite(md) {
  md.core.ruler.push("links_of_the_site", ({ tokens, env }) => {
    const document = DOCUMENT_AT.get(env.relativePath);
    if (document === undefined) return;
    for (const { children } of tokens) {
      for (const token of children ?? []) {
        if (token.type !== "link_open") continue;
        const href = targetOf(token.attrGet("href"), document, env.relativePath);
        token.attrSet("href", href);
        // Not a page that VitePress could load.
        if (href.endsWith(RACE)) token.attrSet("target", "_self");
      }
    }
  });
}

function targetOf(href, document, page) {
  if (/^([a-z]+:|#)/.test(href)) return href;
  const [path, anchor] = href.split("#");
  const target = posix.join(posix.dirname(document), path).replace(/\/$/, "");
  if (target === "demo") return `${posix.dirname(page)}${RACE}`;
  const known = [target, `${target}/README.md`].find((one) => DOCUMENTS.includes(one));
  const hash = anchor === undefined ? "" : `#${anchor}`;
  if (known === undefined) return `${REPOSITORY}/blob/main/${target}${hash}`;
  const relative = posix.relative(posix.dirname(page), addressOf(known));
  return `./${relative}${hash}`;
}

/** Guides come before the reference in the results of a search, and names in it before its recurring headings. */
function weightOf(address) {
  if (/\/(changelog|contributing)\./.test(address)) return 0.2;
  if (!address.includes("/reference/")) return 1;
  return /#(get-signature|parameters|returns|throws|inherited-from|type-)/.test(address)
    ? 0.02
    : 0.2;
}

export default defineConfig({
  title: "varve",
  description: "A storage engine for browsers, Node, Deno, Bun and edge workers.",
  lang: "en",
  srcDir: "../.build/site",
  cacheDir: "../.build/site-cache",
  head: [["link", { rel: "icon", href: "data:," }]],
  // Addresses of files, so that any host serves them.
  cleanUrls: false,
  ignoreDeadLinks: [RACE],
  markdown: {
    // As forges do, so that a link leads to the same heading there and here.
    anchor: { slugify: slug },
    config: linksOfTheSite,
    theme: { light: "github-light-default", dark: "github-dark-default" },
    languageAlias: { "rust,no_run": "rust" },
  },
  // The index of the search is one file, which is loaded by the first search.
  vite: { build: { chunkSizeWarningLimit: 4_000 } },
  themeConfig: {
    nav: [
      { text: "Start", link: "/start/", activeMatch: "/start/" },
      { text: "Guides", link: "/views", activeMatch: GUIDE },
      { text: "Compare", link: "/compare" },
      { text: "Reference", link: "/reference/", activeMatch: "/reference/" },
      { text: "Race", link: RACE, target: "_self" },
    ],
    sidebar: { "/": guides, ...referenceSidebars() },
    outline: { level: [2, 3] },
    search: {
      provider: "local",
      options: {
        miniSearch: { searchOptions: { boostDocument: weightOf } },
      },
    },
    socialLinks: [{ icon: "github", link: REPOSITORY }],
  },
});
