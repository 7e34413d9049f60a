// pg-boss. Default: work(name, handler), which takes one job every 2 s. Best: batches of
// 500, 4 local workers, NOTIFY and a look each 0.5 s, at once again while batches are
// full, cron looked at each second.
import { PgBoss } from 'pg-boss'
import { BEST, CRON, CRON_BASE, DSN, handle, main, when } from './peer.mjs'

const boss = new PgBoss({
  connectionString: DSN,
  ...(BEST && {
    useListenNotify: true, max: 20, cronMonitorIntervalSeconds: 1, cronWorkerIntervalSeconds: 1
  })
})
const options = {
  batchSize: 500,
  localConcurrency: 4,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
  burstWhenBatchFull: true
}
const due = at => at === undefined ? {} : { startAfter: when(at) }
const handler = async jobs => { await Promise.all(jobs.map(job => handle(job.data.n))) }
boss.on('error', error => console.error(error))

await main({
  async setup () {
    await boss.start()
    await boss.createQueue('noop', BEST ? { notify: true } : {})
    await boss.stop()
  },
  async open () { await boss.start() },
  async close () { await boss.stop({ graceful: false }) },
  async one (n, at) { await boss.send('noop', { n }, due(at)) },
  async many (ns, at) {
    await boss.insert('noop', ns.map(n => ({ data: { n }, ...due(at) })))
  },
  async work () {
    await boss.start()
    for (let i = 0; i < CRON; i++) {
      await boss.schedule('noop', '* * * * *', { n: CRON_BASE + i }, { key: `cron${i}` })
    }
    if (BEST) await boss.work('noop', options, handler)
    else await boss.work('noop', handler)
  }
})
