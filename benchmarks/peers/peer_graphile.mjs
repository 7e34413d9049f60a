// graphile-worker. Default: one job at once. Best, as its page on speed has it: 24 at
// once, a local queue of 500, jobs completed in batches; a look each second, not 2.
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { BEST, CRON, CRON_BASE, DSN, handle, main, when } from './peer.mjs'

// It would tell of each job that is done.
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })
const preset = {
  worker: {
    connectionString: DSN,
    logger,
    ...(BEST && {
      concurrentJobs: 24,
      maxPoolSize: 20,
      pollInterval: 1000,
      localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0
    })
  }
}
const taskList = { noop: async ({ n }) => handle(n) }
const entry = i => `* * * * * noop ?id=cron${i} {"n":${CRON_BASE + i}}\n`
let utils

await main({
  async setup () {
    await this.open()
    await utils.migrate()
    await this.close()
  },
  async open () { utils = await makeWorkerUtils({ connectionString: DSN, logger }) },
  async close () { await utils.release() },
  async one (n, at) { await utils.addJob('noop', { n }, { runAt: when(at) }) },
  async many (ns, at) {
    await utils.addJobs(ns.map(n => ({ identifier: 'noop', payload: { n }, runAt: when(at) })))
  },
  async work () {
    const crontab = Array.from({ length: CRON }, (_, i) => entry(i)).join('')
    const runner = await run({ preset, taskList, ...(CRON && { crontab }) })
    await runner.promise
  }
})
