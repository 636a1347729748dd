// Runs cases (cases.mjs) in Node: what became of each, as JSON. Arguments: sow.js, and names of cases or none for all.
import { pathToFileURL } from "node:url";
import { outcomes } from "./outcomes.mjs";

const [file, ...names] = process.argv.slice(2);
console.log(JSON.stringify(await outcomes(await import(pathToFileURL(file)), names)));
process.exit(0);
