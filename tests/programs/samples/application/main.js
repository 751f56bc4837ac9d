const fs = require("fs");
const http = require("http");
const { execFileSync } = require("child_process");
const { Worker } = require("worker_threads");

const twice = require("twice");

console.log(twice(21));
console.log(execFileSync("echo", ["from a child"]).toString().trim());
fs.writeFileSync("written.txt", "by node\n");

function serve() {
  const server = http.createServer((request, response) => response.end("served"));
  server.listen(0, "127.0.0.1", () => {
    http.get({ host: "127.0.0.1", port: server.address().port }, (response) => {
      response.on("data", (data) => console.log(String(data)));
      response.on("end", () => server.close());
    });
  });
}

const worker = new Worker("require('worker_threads').parentPort.postMessage('from a worker')", { eval: true });
worker.on("message", (message) => {
  console.log(message);
  serve();
});
