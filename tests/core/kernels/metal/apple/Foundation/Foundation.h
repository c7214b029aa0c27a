#pragma once
// The few declarations of Foundation and Grand Central Dispatch that metal_queue.mm uses, written
// for its syntax check where there are no Apple headers.
#include <cstddef>

using NSUInteger = unsigned long;
using BOOL = bool;
#define YES true
#define NO false
#define nil nullptr

__attribute__((objc_root_class))
@interface NSObject
+ (instancetype)alloc;
- (instancetype)init;
@end

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char*)text;
- (const char*)UTF8String;
@end

@interface NSError : NSObject
- (NSString*)localizedDescription;
@end

@protocol OS_dispatch_queue
@end
using dispatch_queue_t = id<OS_dispatch_queue>;
void dispatch_sync(dispatch_queue_t queue, void (^block)(void));
