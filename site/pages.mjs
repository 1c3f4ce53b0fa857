// Which documents of the repository are pages of the site, at which addresses, and in which order.

/** The parts of the site: titles, and in each the documents with their titles in the navigation. */
export const PARTS = [
  {
    text: "Start",
    pages: {
      "docs/start/README.md": "In five minutes",
      "docs/start/vite.md": "Web app with Vite",
      "docs/start/next.md": "Next",
      "docs/start/plain-page.md": "Page without a bundler",
      "docs/start/node.md": "Node",
      "docs/start/deno.md": "Deno",
      "docs/start/bun.md": "Bun",
      "docs/start/durable-objects.md": "Durable Objects",
      "docs/start/rust.md": "Rust",
      "docs/start/rust-web.md": "Rust on the web",
    },
  },
  {
    text: "Guides",
    pages: {
      "docs/views.md": "Views and their lifetime",
      "docs/durability.md": "Durability",
      "docs/collections.md": "Collections and indexes",
      "docs/records.md": "Records, shared with Rust",
      "docs/pages.md": "Pages and tabs",
      "docs/live.md": "Following changes",
      "docs/history.md": "History",
      "docs/snapshots.md": "Snapshots",
      "docs/expiry.md": "Expiry",
      "docs/structured.md": "Values as they are",
      "docs/standard.md": "Schemas of zod and others",
      "docs/blobs.md": "Large values: blobs",
      "docs/migrate.md": "Moving in",
      "docs/cloudflare.md": "Edge: Cloudflare Workers",
      "docs/rust-web.md": "Rust in browsers",
    },
  },
  {
    text: "Recipes",
    pages: {
      "docs/places.md": "For each place",
      "docs/platforms.md": "Extension, Electron, Tauri, Capacitor",
      "docs/hooks.md": "React, Vue, Svelte, Solid",
      "docs/inspect.md": "A file drawn on a page",
      "docs/keyv.md": "Keyv",
      "docs/unstorage.md": "unstorage",
      "docs/idb-keyval.md": "idb-keyval",
      "docs/level.md": "abstract-level",
      "docs/zustand.md": "Zustand",
      "docs/query.md": "TanStack Query",
      "docs/yjs.md": "Yjs",
      "docs/automerge.md": "Automerge",
      "docs/tinybase.md": "TinyBase",
      "docs/tanstack-db.md": "TanStack DB",
      "examples/README.md": "Examples",
    },
  },
  {
    text: "Compare",
    pages: {
      "docs/compare.md": "Use something else when …",
      "docs/benchmarks.md": "Benchmarks",
    },
  },
  {
    text: "How it works",
    pages: {
      "ARCHITECTURE.md": "Architecture",
      "crate/DESIGN.md": "Design of the engine",
      "crate/FORMAT.md": "The file format",
      "CONTRIBUTING.md": "Working on varve",
      "SECURITY.md": "Security",
      "CHANGELOG.md": "Changelog",
    },
  },
  {
    text: "Reference",
    pages: {
      "docs/api.md": "The API in one page",
      "docs/errors.md": "Errors",
    },
  },
];

/** The address of a document's page, as a path of the site that ends in ".md". */
export function addressOf(document) {
  if (document === "README.md") return "index.md";
  const path = document.replace(/^(docs|crate)\//, "").replace(/(^|\/)README\.md$/, "$1index.md");
  return path.replace(/^[A-Z]+\.md$/, (name) => name.toLowerCase());
}

/** All documents that are pages. The README is the first page. */
export const DOCUMENTS = ["README.md", ...PARTS.flatMap(({ pages }) => Object.keys(pages))];

/** Documents by the addresses of their pages. */
export const DOCUMENT_AT = new Map(DOCUMENTS.map((path) => [addressOf(path), path]));

/** Where files of the repository are that are no pages. */
export const REPOSITORY = "https://github.com/varve-db/varve";
