// Copy what the site serves itself from npm packages: fonts and KaTeX, each with its licence.
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "assets");
const modules = join(here, "node_modules");

const fonts = join(assets, "fonts");
rmSync(fonts, { recursive: true, force: true });
mkdirSync(fonts, { recursive: true });
const faces = {
  "ibm-plex-sans": ["latin-400-normal", "latin-400-italic", "latin-600-normal"],
  "ibm-plex-mono": ["latin-400-normal"],
};
for (const [family, names] of Object.entries(faces)) {
  const source = join(modules, "@fontsource", family);
  for (const name of names) cpSync(join(source, "files", `${family}-${name}.woff2`), join(fonts, `${family}-${name}.woff2`));
  cpSync(join(source, "LICENSE"), join(fonts, `LICENSE-${family}.txt`));
}

const katex = join(assets, "katex");
rmSync(katex, { recursive: true, force: true });
mkdirSync(join(katex, "fonts"), { recursive: true });
const dist = join(modules, "katex", "dist");
for (const name of ["katex.min.js", "katex.min.css"]) cpSync(join(dist, name), join(katex, name));
for (const name of readdirSync(join(dist, "fonts"))) {
  if (name.endsWith(".woff2")) cpSync(join(dist, "fonts", name), join(katex, "fonts", name));
}
cpSync(join(modules, "katex", "LICENSE"), join(katex, "LICENSE.txt"));
