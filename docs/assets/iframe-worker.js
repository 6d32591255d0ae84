// Pages opened from disk (file://) may not start a worker, and the search runs in one. There, and only there, this
// stands in for Worker: the same script in a hidden frame, with the messages passed on both ways.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inner = frame.contentWindow
      const loaded = new Promise((done) => {
        inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        inner.importScripts = (...scripts) => Promise.all(scripts.map((one) => load(inner.document, one)))
        load(inner.document, url).then(done)
      })
      this.postMessage = (data) => loaded.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
      this.terminate = () => frame.remove()
    }
  }
  const load = (page, url) =>
    new Promise((done, failed) => {
      const script = page.createElement("script")
      Object.assign(script, { src: url, onload: done, onerror: failed })
      page.body.appendChild(script)
    })
}
