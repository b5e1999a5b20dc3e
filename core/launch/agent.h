// The launcher's helper process (`dtorch __agent`): it loads libdtorch so that the launcher need not. It runs the pre-flight,
// serves the job's store on node 0 (outliving rank 0), reaches it from other nodes. Its outer half is the watchdog of
// cleanup.h, which ends the ranks if the launcher dies; only the inner half, started by the first request, loads libdtorch.
#pragma once

// Protocol on its control channel (launcher → agent : agent → launcher), every request with "id", every answer with the same:
//   {"type":"preflight","spec":yaml,"places":t,"local_ranks":n} : {"type":"plan","plan":{...}} | {"type":"failure",...}; "log" lines meanwhile
//   {"type":"serve","fd":n}                      : {"type":"serving","port":p}       n: inherited listening socket
//   {"type":"connect","host":h,"port":p,"timeout_ms":t} : {"type":"connected"} | {"type":"failure",...}
//   {"type":"connect","url":init_method}         : {"type":"connected"} | {"type":"failure",...}   a folder's store
//   {"type":"leave"}                             : {"type":"done"}      takes leave of that folder
//   {"type":"set","key":k,"value":v}             : {"type":"done"}
//   {"type":"add","key":k,"amount":n}            : {"type":"value","value":n}
//   {"type":"get","key":k,"timeout_ms":t}        : {"type":"value","value":v} | {"type":"failure",kind timeout}
//   {"type":"first","counter":c,"key":k,"value":v} : {"type":"value","value":n}   adds 1 to c; sets k if that makes 1
//   {"type":"will","counter":c,"key":k,"value":v} : {"type":"done"}     a "first" for when the launcher dies; without key: none
//   {"type":"beat","key":k}                      : {"type":"done"}      adds 1 to k every second from now on
// Before the first answer it says {"type":"helper","pid":p}, whom to look after beside itself.
// The launcher's "get" waits are short: it asks again, so answering one request after the other is good enough. When the
// channel is closed the agent ends. Process groups to kill are not its business: the watchdog is told of them directly.
