// Reads diagrams, a JSON object {place: text}, from its input, and writes one line for each that mermaid does not understand.
// The argument is mermaid's file.
const fs = require("node:fs");
const vm = require("node:vm");

// Without a browser mermaid's sanitizer is a function that lacks these two; parsing needs neither.
Object.assign(Function.prototype, { addHook() {}, sanitize: (text) => text });
vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"));

(async () => {
  for (const [place, text] of Object.entries(JSON.parse(fs.readFileSync(0, "utf8")))) {
    try {
      await mermaid.parse(text);
    } catch (error) {
      console.log(`${place}: ${String(error.message ?? error).split("\n").slice(0, 4).join(" ")}`);
    }
  }
})();
