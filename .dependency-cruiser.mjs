// Which way imports go. `npx depcruise js demo benches scripts` checks them, as `npm run check` does.

/** The layers of js/, lowest first, by their folders and their entry points. A layer imports itself and those before it. */
const LAYERS = [
  ["errors"],
  ["util"],
  ["struct", "codec", "json", "rust"],
  ["storage"],
  ["engine", "varve"],
  ["session"],
  ["collection"],
  ["database"],
  ["client"],
  ["index", "serve", "workerd"],
  // What a program imports besides: it is built on what all programs import.
  ["extensions"],
  // The command line is for Node, Deno and Bun, and no part of what a browser gets.
  ["cli"],
];

const paths = (layers) => `^js/(${layers.flat().join("|")})(/|\\.)`;

/** The folders of a client's code: what runs in the owner's worker knows the connection, and not the reverse. */
const CLIENT = ["protocol", "connection", "worker"];

export default {
  forbidden: [
    {
      name: "no-circle",
      comment: "Two files that import each other cannot be understood one after the other.",
      severity: "error",
      from: { path: "^(js|demo|benches|scripts)/" },
      to: { circular: true },
    },
    ...LAYERS.slice(0, -1).map((layer, index) => ({
      name: `${layer[0]}-is-below`,
      comment: "A layer of js/ imports only itself and the layers below it.",
      severity: "error",
      from: { path: paths(layer) },
      to: { path: paths(LAYERS.slice(index + 1)) },
    })),
    {
      name: "storage-without-struct",
      comment: "Files know nothing of schemas.",
      severity: "error",
      from: { path: "^js/storage/" },
      to: { path: paths(LAYERS[2]) },
    },
    ...CLIENT.slice(0, -1).map((folder, index) => ({
      name: `client-${folder}-is-below`,
      comment:
        "Of a client's code, the protocol imports nothing else, and the connection no worker.",
      severity: "error",
      from: { path: `^js/client/${folder}/` },
      to: { path: `^js/client/((${CLIENT.slice(index + 1).join("|")})/|[^/]+\\.ts$)` },
    })),
    {
      name: "known-layer",
      comment: "A new folder or entry point gets its place among the layers above.",
      severity: "error",
      from: { path: "^js/", pathNot: paths(LAYERS) },
      to: {},
    },
    {
      name: "no-dependencies",
      comment:
        "The package has none, and outside the command line takes of Node only types. Only its adapters for " +
        "abstract-level, Yjs and TinyBase and its hooks import a library, which their users have installed.",
      severity: "error",
      from: {
        path: "^js/",
        pathNot:
          "^js/(cli|storage/node/builtins|extensions/(adapters/(level|yjs|tinybase)|hooks/(react|vue|solid)))",
      },
      to: {
        dependencyTypes: ["core", "npm", "npm-dev", "npm-no-pkg", "npm-unknown"],
      },
    },
    {
      // The same holds for tests/, where biome checks it: swc's parser is not understood where there is a `using`.
      name: "by-its-name",
      comment: 'What is not the package imports it as everyone does: from "varve".',
      severity: "error",
      from: { path: "^(demo|benches)/" },
      to: { path: "^(js|dist)/", pathNot: "^dist/varve", dependencyTypes: ["local"] },
    },
    {
      name: "resolvable",
      severity: "error",
      from: { path: "^js/" },
      // The wasm is made by the build.
      to: { couldNotResolve: true, pathNot: "varve\\.wasm$" },
    },
  ],
  options: {
    doNotFollow: { path: ["node_modules", "^dist/"] },
    exclude: { path: ["node_modules/(?!varve)", "/target/", "\\.build/"] },
    // The TypeScript compiler of version 7 has no interface that this tool could use.
    parser: "swc",
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: { exportsFields: ["exports"], conditionNames: ["import", "types"] },
  },
};
